DELETE FROM done WHERE seq IN (SELECT value FROM json_each(:seqs))
