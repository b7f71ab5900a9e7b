-- Know what there is before it is asked for.
ANALYZE holdfast.jobs, holdfast.dead, holdfast.history, holdfast.attempts, holdfast.notes
