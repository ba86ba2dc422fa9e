"""The part that waits: written by hand here, mirrored into the sync tree."""  # generated from _async by tools/mirror.py; do not edit
