"""The client: written by hand in `_async`, from which `tools/mirror.py` generates `_sync`."""
