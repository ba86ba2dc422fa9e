"""One store for each kind of item, on top of the table port."""  # generated from _async by tools/mirror.py; do not edit
