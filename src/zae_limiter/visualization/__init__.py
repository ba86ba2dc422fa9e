"""Format usage: snapshots in, text out. Nothing here waits, reads a clock or depends on a terminal."""
