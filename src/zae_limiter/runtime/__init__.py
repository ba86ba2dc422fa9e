"""How both trees wait: two calls at the same time, locks, sleeping, threads. Written by hand in both forms."""
