"""Stores: items of one kind each, on the table port."""
