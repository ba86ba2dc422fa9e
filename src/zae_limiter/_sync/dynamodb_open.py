"""Opening a table of DynamoDB: who calls and where, and by which transport. Loaded only where such a table is used."""  # generated from _async by tools/mirror.py; do not edit

import logging
from contextlib import suppress
from random import Random
from typing import Any

import zae_limiter.runtime.threads as runtime
from zae_limiter._sync.botocore_transport import BotocoreTransport
from zae_limiter._sync.dynamodb_table import ADMIN_FACTOR, DynamoTable, Patience, TransportPort
from zae_limiter.aws.account import Account, EndpointOptions, load_account, loaded
from zae_limiter.clock import Clock, ServerClock
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.location import DynamoLocation
from zae_limiter.transport.threads import Transport

_log = logging.getLogger("zae_limiter")


def open_table(
    location: DynamoLocation, deadline_s: float, means: tuple[Clock, Random], session: Any = None
) -> DynamoTable:
    """Return the table at a location, which need not be there yet.

    Raises:
        ValidationError: No region is configured.
        StorageError: There are no credentials, or the configuration cannot be used.
        RateLimiterUnavailable: Loading the credentials took longer than a call of administration may.
    """
    clock, random = means
    place = EndpointOptions(location.name, location.region, location.endpoint_url, deadline_s / 2)
    account = _account(place, session, deadline_s * ADMIN_FACTOR)
    server = ServerClock(clock)
    return DynamoTable(
        location.name, caller(account, clock, server), server, Patience(clock, deadline_s, random.random)
    )


def _account(place: EndpointOptions, session: Any, within_s: float) -> Account:
    """Find credentials and endpoint, together with other callers that open the same table.

    A load that takes longer goes on, and the next opening uses it.
    """
    load = load_account(place, session)
    with suppress(Exception):
        runtime.shared(load, within_s)
    if not load.done():
        late = TimeoutError(f"the credentials were not loaded within {within_s:.2f} s")
        raise RateLimiterUnavailable(late, place.table)
    loaded(place, session)
    return load.result(0)


def caller(account: Account, clock: Clock, server: ServerClock) -> TransportPort:
    """Return the lean transport, or botocore's where there is a reason to use it."""
    if account.reason_to_carry is None:
        return Transport(account, clock, server)
    _log.info("botocore carries the calls, at its own price: %s", account.reason_to_carry)
    return BotocoreTransport(account, clock, server)
