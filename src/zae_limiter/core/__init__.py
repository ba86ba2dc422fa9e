"""Decides: values in, values out. Nothing here waits, reads a clock, draws at random or looks at the environment."""
