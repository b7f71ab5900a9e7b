"""Speed: ours, the machine's limits and what people use today, in the same run."""
