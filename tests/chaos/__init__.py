"""Two real hubs while everything around them fails: `python -m tests.chaos`, `make chaos`."""
