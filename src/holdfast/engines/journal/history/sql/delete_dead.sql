DELETE FROM dead WHERE seq IN (SELECT value FROM json_each(:seqs))
