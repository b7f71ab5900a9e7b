-- Have what follows in this transaction planned for what it is asked, and for what there is.
SELECT
    set_config('plan_cache_mode', 'force_custom_plan', true),
    set_config('enable_seqscan', 'on', true),
    set_config('enable_hashjoin', 'on', true),
    set_config('enable_mergejoin', 'on', true)
