"""Where items are kept: in memory, in a SQLite file, or in DynamoDB's dialect. Blocking, and without a clock."""
