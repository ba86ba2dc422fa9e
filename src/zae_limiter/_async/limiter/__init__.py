"""The limiter: acquire, lease, and what carries them out."""
