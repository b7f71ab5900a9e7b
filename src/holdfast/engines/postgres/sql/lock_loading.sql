-- Lock the tables against other loads and against writers.
LOCK TABLE holdfast.loading, holdfast.jobs, holdfast.dead, holdfast.history, holdfast.attempts,
    holdfast.notes, holdfast.audit, holdfast.policies, holdfast.flags, holdfast.schedules
    IN SHARE ROW EXCLUSIVE MODE
