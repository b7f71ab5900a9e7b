"""The PostgreSQL engine: ``engine`` has the verbs, the packages hold its parts."""
