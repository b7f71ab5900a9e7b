-- The processes of the registry that are live, or all that are remembered.
SELECT w.process, w.seen_at_us, w.live_until_us > clock.now_us
FROM holdfast.workers AS w
CROSS JOIN (SELECT coalesce(%(now_us)s::bigint, holdfast.now_us()) AS now_us) AS clock
WHERE w.live_until_us > clock.now_us
    OR (%(gone)s::boolean AND w.live_until_us >= clock.now_us - %(remember_us)s::bigint)
