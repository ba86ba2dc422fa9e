"""The limiter: carries out what core decides, on a repository it is handed."""
