SELECT json_group_array(json_array(tenant, queue, state, count)) FROM tallies
