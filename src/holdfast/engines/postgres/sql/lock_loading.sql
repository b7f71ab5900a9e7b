-- Be the only one who begins a load, while nobody puts anything in.
LOCK TABLE holdfast.loading, holdfast.jobs, holdfast.dead, holdfast.history, holdfast.attempts,
    holdfast.notes, holdfast.audit, holdfast.policies, holdfast.flags, holdfast.schedules
    IN SHARE ROW EXCLUSIVE MODE
