"""The limiter: acquire, lease, and what carries them out."""  # generated from _async by tools/mirror.py; do not edit
