"""Sends one signed DynamoDB request: one module for asyncio, and one for threads with the same names."""
