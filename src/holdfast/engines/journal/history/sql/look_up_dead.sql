-- What leaves the dead, with everything that is counted of it.
SELECT json_group_array(json_array(
  dead.seq, dead.tenant, dead.scope, kinds.queue, dead.state, dead.kind, dead.shape,
  dead.finished_at_us, kinds.failure_class
))
FROM json_each(:names) AS name
CROSS JOIN dead INDEXED BY dead_by_name
  ON dead.id = json_extract(name.value, '$[1]') AND dead.tenant = json_extract(name.value, '$[0]')
CROSS JOIN kinds ON kinds.kind = dead.kind
