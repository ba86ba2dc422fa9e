"""Items of one kind each, on the table port."""  # generated from _async by tools/mirror.py; do not edit
