"""Usage made visible: snapshots in, text out. Nothing here waits, reads a clock or knows a terminal."""
