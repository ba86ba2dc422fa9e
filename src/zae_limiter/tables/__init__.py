"""Stores items in memory or in a SQLite file, and translates them to DynamoDB's JSON; blocking, without a clock."""
