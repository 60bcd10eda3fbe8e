"""Atomic transactions: this hub as coordinator and as participant (spec 5)."""
