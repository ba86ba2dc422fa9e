"""One store for each kind of item, on top of the table port."""
