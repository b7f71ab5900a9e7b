INSERT INTO done_size (only_row, bytes)
SELECT 1, coalesce(sum(length(CAST(body AS BLOB)) + 256), 0) FROM done
