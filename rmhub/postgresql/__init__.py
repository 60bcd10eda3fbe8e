"""Django's PostgreSQL backend with a bound on the connections of a process (docs/decisions.md)."""
