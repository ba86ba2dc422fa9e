"""Empty and delete the buckets of stacks. Blocking."""

from typing import Any


def remove_bucket(client: Any, bucket: str) -> None:
    """Delete a bucket with all its objects; a bucket that does not exist is ignored."""
    try:
        _delete_objects(client, bucket)
        client.delete_bucket(Bucket=bucket)
    except client.exceptions.NoSuchBucket:
        return


def empty_bucket(client: Any, bucket: str) -> None:
    """Delete all objects of a bucket; a bucket that does not exist is ignored."""
    try:
        _delete_objects(client, bucket)
    except client.exceptions.NoSuchBucket:
        return


def _delete_objects(client: Any, bucket: str) -> None:
    """Delete all objects page by page, with all versions, because versioning may have been enabled."""
    for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket):
        found = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        if found:
            objects = [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in found]
            client.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
