-- Delete what was loaded so far.
TRUNCATE holdfast.loading, holdfast.jobs, holdfast.dead, holdfast.history, holdfast.attempts,
    holdfast.notes, holdfast.audit, holdfast.policies, holdfast.flags, holdfast.schedules,
    holdfast.turns, holdfast.outages, holdfast.chronicle_events, holdfast.subscriptions
