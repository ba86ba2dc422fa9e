"""The part that waits: written by hand here, mirrored into the sync tree."""
