SELECT bytes FROM done_size
