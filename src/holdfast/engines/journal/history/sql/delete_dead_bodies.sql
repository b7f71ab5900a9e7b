DELETE FROM dead_bodies WHERE seq IN (SELECT value FROM json_each(:seqs))
