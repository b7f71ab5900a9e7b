"""The write-ahead log: frames, segments, group commit, recovery, and the disk below them."""
