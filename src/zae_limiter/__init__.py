"""A rate limiter for many limits at once."""
