"""Describe the items, keys and operations of the table. Nothing here waits or decides."""

from zae_limiter.core.names import RESERVED_NAMESPACE
from zae_limiter.schema.keys import (
    gsi3_pk_entity,
    gsi3_sk_bucket,
    parse_bucket_pk,
    pk_bucket,
    pk_entity,
    pk_resource,
    pk_system,
    sk_config,
    sk_entity_config_resources,
    sk_namespace,
    sk_nsid,
    sk_state,
)

__all__ = [
    "RESERVED_NAMESPACE",
    "gsi3_pk_entity",
    "gsi3_sk_bucket",
    "parse_bucket_pk",
    "pk_bucket",
    "pk_entity",
    "pk_resource",
    "pk_system",
    "sk_config",
    "sk_entity_config_resources",
    "sk_namespace",
    "sk_nsid",
    "sk_state",
]
