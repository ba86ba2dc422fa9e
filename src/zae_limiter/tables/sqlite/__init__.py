"""Items in a SQLite file."""
