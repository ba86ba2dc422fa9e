"""Counts what buckets have used: from the stream of a deployed table, or from the log of an embedded one.

Nothing is imported here: who needs a part imports that part.
"""
