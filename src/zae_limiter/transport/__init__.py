"""One signed DynamoDB call. Written by hand in both forms."""
