"""Waiting, locks, threads and concurrent calls: one module for asyncio, and one for threads with the same names."""
