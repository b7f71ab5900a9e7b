SELECT shape FROM shapes WHERE fingerprint = :fingerprint
