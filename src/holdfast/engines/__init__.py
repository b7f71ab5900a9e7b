"""Where work is kept: ``base`` is the contract, its siblings keep it."""
