"""Decide: pure functions of values. Nothing here waits, reads a clock or the environment, or draws random numbers."""
