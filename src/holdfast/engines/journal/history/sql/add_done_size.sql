UPDATE done_size SET bytes = bytes + :bytes
