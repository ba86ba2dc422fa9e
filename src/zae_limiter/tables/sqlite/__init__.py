"""A table in a SQLite file."""
