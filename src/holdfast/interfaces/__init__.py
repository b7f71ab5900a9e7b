"""Who asks: people and programs outside, over HTTP and the command line."""
