"""What both trees use and what never waits: cached views and limits, and requests as values."""
