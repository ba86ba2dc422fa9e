"""Translates items, operations and responses to and from DynamoDB's JSON. Pure: nothing here sends a request."""
