"""Everything a store keeps as an engine-neutral stream: format, digest, redaction."""
