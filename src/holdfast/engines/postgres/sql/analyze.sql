-- Update the planner's statistics after a load.
ANALYZE holdfast.jobs, holdfast.dead, holdfast.history, holdfast.attempts, holdfast.notes,
    holdfast.chronicle_events
