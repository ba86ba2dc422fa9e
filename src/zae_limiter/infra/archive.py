"""Removes the bucket that audit events were archived in. Blocking."""

from typing import Any


def remove(client: Any, bucket: str) -> None:
    """Remove a bucket with everything in it; one that is gone is left alone."""
    try:
        _empty(client, bucket)
        client.delete_bucket(Bucket=bucket)
    except client.exceptions.NoSuchBucket:
        return


def _empty(client: Any, bucket: str) -> None:
    """Remove the objects page by page, with all their versions, in case somebody has turned versions on."""
    for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket):
        found = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        if found:
            objects = [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in found]
            client.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
