"""Count the usage of buckets, from the stream of a deployed table or from the log of an embedded one.

Nothing is imported here. Import the modules that you need.
"""
