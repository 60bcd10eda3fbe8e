"""The code of an earlier revision and that of today side by side, on tables that today's migrations made."""
