"""Describe the items, keys and operations of the table. Nothing here waits or decides."""
