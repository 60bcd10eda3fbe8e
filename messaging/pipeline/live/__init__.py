"""The live watch: Structured Streaming over the hub's events. Only `manage.py pipeline live` imports it."""
