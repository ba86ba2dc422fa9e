"""Items of one kind each, on the table port."""
