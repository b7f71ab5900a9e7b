"""Snapshots of the journal's state, and the compaction that writes them."""
