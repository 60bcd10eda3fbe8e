"""A site of django-pyas2, the peer. Runs in the peer's environment, not in ours, and imports nothing of ours."""
