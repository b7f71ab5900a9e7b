-- What is purged, with everything that is counted of it.
SELECT json_group_array(json_array(done.seq, done.tenant, done.queue, done.state))
FROM json_each(:jobs) AS job
CROSS JOIN done INDEXED BY done_by_name
  ON done.id = json_extract(job.value, '$[1]')
  AND done.tenant = json_extract(job.value, '$[0]')
  AND done.created_at_us = json_extract(job.value, '$[2]')
