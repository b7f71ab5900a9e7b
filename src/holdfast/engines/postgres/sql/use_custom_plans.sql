-- Plan the statements of this transaction for their parameters and the current statistics, without
-- parallel workers: a large query takes one processor and leaves the others to the jobs.
SELECT
    set_config('plan_cache_mode', 'force_custom_plan', true),
    set_config('enable_seqscan', 'on', true),
    set_config('enable_hashjoin', 'on', true),
    set_config('enable_mergejoin', 'on', true),
    set_config('max_parallel_workers_per_gather', '0', true)
