-- When the jobs of these names were made: each one's last, if an id came back.
SELECT json_group_array(json_array(
  key,
  coalesce(
    (
      SELECT created_at_us FROM dead
      WHERE dead.id = json_extract(value, '$[1]') AND dead.tenant = json_extract(value, '$[0]')
    ),
    (
      SELECT max(created_at_us) FROM done
      WHERE done.id = json_extract(value, '$[1]') AND done.tenant = json_extract(value, '$[0]')
    )
  )
))
FROM json_each(:names)
