-- Have what follows in this transaction planned for what it is asked, and for what there is; but a
-- large answer takes one processor and leaves the others to the work.
SELECT
    set_config('plan_cache_mode', 'force_custom_plan', true),
    set_config('enable_seqscan', 'on', true),
    set_config('enable_hashjoin', 'on', true),
    set_config('enable_mergejoin', 'on', true),
    set_config('max_parallel_workers_per_gather', '0', true)
