-- Enter periodic work that was never done, so that it can be locked.
INSERT INTO holdfast.loops (name, ran_at_us) VALUES (%(name)s::text, 0) ON CONFLICT (name) DO NOTHING
