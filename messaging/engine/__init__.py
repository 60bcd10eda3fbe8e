"""The worker's engines: claim, talk, record."""
