"""Load tests: drive a limiter, measure it, and check whether its promise held."""
