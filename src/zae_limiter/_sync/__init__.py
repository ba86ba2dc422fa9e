"""The client: written by hand in `_async`, from which `tools/mirror.py` generates `_sync`."""  # generated from _async by tools/mirror.py; do not edit
