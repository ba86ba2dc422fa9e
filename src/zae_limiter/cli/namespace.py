"""``zae-limiter namespace``: parts of a limiter that know nothing of each other, from register to purge."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from zae_limiter.cli._confirm import require_consent
from zae_limiter.cli._help import examples, help_of, json_shape
from zae_limiter.cli._hints import PLACE, calling
from zae_limiter.cli._options import json_option, principal_option, yes_option
from zae_limiter.cli._output import Column, Grid, print_grid, print_json, print_line, print_note, working
from zae_limiter.cli._place import Target, target_options
from zae_limiter.cli._store import opened_registry
from zae_limiter.core.errors import NamespaceNotFoundError, ValidationError
from zae_limiter.core.namespace import Namespace, check_namespace_id

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository

REGISTERING = "zae-limiter namespace register tenant-alpha tenant-beta"
LISTING = "zae-limiter namespace list"
SHOWING = "zae-limiter namespace show tenant-alpha"
DELETING = "zae-limiter namespace delete tenant-alpha"
RECOVERING = "zae-limiter namespace recover a7x3kq00000"
ORPHANS = "zae-limiter namespace orphans"
PURGING = "zae-limiter namespace purge a7x3kq00000 --yes"
KEYS = "{id, name, status, created_at, deleted_at}"
SHAPE, SHAPES = json_shape(KEYS), json_shape(f"[{KEYS}]")


@click.group(short_help="Parts of a limiter that know nothing of each other.", epilog=examples(REGISTERING, LISTING))
def namespace() -> None:
    """Namespaces: parts of a limiter, as for tenants, that know nothing of each other's entities, limits and usage.

    Data commands work in the one that --namespace names.
    """


@namespace.command(
    "register",
    short_help="Register namespaces.",
    epilog=help_of(examples(REGISTERING), json_shape("{name: id, for each}")),
)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@principal_option
@json_option
@target_options
def register(names: tuple[str, ...], principal: str | None, as_json: bool, target: Target) -> None:
    """Register namespaces, and show their ids. One that is there already stays as it is."""
    with opened_registry(target) as repo, working(f"Registering {len(names)} namespaces"):
        ids = repo.register_namespaces(names, principal)
    if as_json:
        print_json(ids)
    else:
        print_grid(Grid([Column("namespace"), Column("id")], list(ids.items())))


@namespace.command("list", short_help="List the namespaces.", epilog=help_of(examples(LISTING), SHAPES))
@json_option
@target_options
def list_namespaces(as_json: bool, target: Target) -> None:
    """List the active namespaces, in the order of their names."""
    with opened_registry(target) as repo:
        found = repo.list_namespaces()
    if as_json:
        print_json([asdict(one) for one in found])
    elif found:
        columns = [Column("namespace"), Column("id"), Column("created")]
        print_grid(Grid(columns, [(one.name, one.id, one.created_at) for one in found]))
    else:
        print_note(f"There are no namespaces. Register one: {calling('namespace register default', PLACE)}")


@namespace.command("show", short_help="Show a namespace.", epilog=help_of(examples(SHOWING), SHAPE))
@click.argument("name", metavar="NAME")
@json_option
@target_options
def show(name: str, as_json: bool, target: Target) -> None:
    """Show an active namespace."""
    with opened_registry(target) as repo:
        found = repo.get_namespace(name)
    print_namespace(found, as_json)


@namespace.command(
    "delete", short_help="Hide a namespace and keep its data.", epilog=help_of(examples(DELETING), SHAPE)
)
@click.argument("name", metavar="NAME")
@principal_option
@json_option
@target_options
def delete(name: str, principal: str | None, as_json: bool, target: Target) -> None:
    """Hide a namespace and free its name.

    Whoever works in it is refused. Its data is kept, until it is brought back by recover or removed by purge.
    """
    with opened_registry(target) as repo:
        deleted = repo.delete_namespace(name, principal)
    if as_json:
        print_json(asdict(deleted))
        return
    print_line(f"Deleted namespace {deleted.name}; its data is kept under the id {deleted.id}.")
    print_note(f"To bring it back:        {calling(f'namespace recover {deleted.id}', PLACE)}")
    print_note(f"To remove it for good:   {calling(f'namespace purge {deleted.id}', PLACE)}")


@namespace.command("recover", short_help="Bring a deleted namespace back.", epilog=help_of(examples(RECOVERING), SHAPE))
@click.argument("namespace_id", metavar="ID")
@principal_option
@json_option
@target_options
def recover(namespace_id: str, principal: str | None, as_json: bool, target: Target) -> None:
    """Bring a deleted namespace back under its name, with all its data."""
    with known_by_id(namespace_id), opened_registry(target) as repo:
        recovered = repo.recover_namespace(namespace_id, principal)
    print_namespace(recovered, as_json)


@namespace.command("orphans", short_help="List the deleted namespaces.", epilog=help_of(examples(ORPHANS), SHAPES))
@json_option
@target_options
def orphans(as_json: bool, target: Target) -> None:
    """List the namespaces that were deleted and are not purged, the longest deleted first."""
    with opened_registry(target) as repo:
        found = repo.list_orphan_namespaces()
    if as_json:
        print_json([asdict(one) for one in found])
    elif found:
        columns = [Column("id"), Column("was called"), Column("status"), Column("deleted")]
        print_grid(Grid(columns, [(one.id, one.name, one.status.value, one.deleted_at or "") for one in found]))
    else:
        print_note("No namespace waits to be recovered or purged.")


@namespace.command(
    "purge",
    short_help="Remove a deleted namespace for good.",
    epilog=help_of(examples(PURGING), json_shape("{id, removed: how many items}")),
)
@click.argument("namespace_id", metavar="ID")
@yes_option
@principal_option
@json_option
@target_options
def purge(namespace_id: str, yes: bool, principal: str | None, as_json: bool, target: Target) -> None:
    """Remove a deleted namespace and everything in it for good. One that was interrupted is finished by the next."""
    with known_by_id(namespace_id), opened_registry(target) as repo:
        if not yes:
            require_consent(f"Remove {described(namespace_id, repo.list_orphan_namespaces())} for good?")
        removed = remove_for_good(repo, namespace_id, principal)
    if as_json:
        print_json({"id": namespace_id, "removed": removed})
    else:
        print_line(f"Removed namespace {namespace_id} and the {removed} items in it.")


def remove_for_good(repo: "SyncRepository", namespace_id: str, principal: str | None) -> int:
    """Purge a namespace, and show how far it is."""
    removed = 0
    with working(f"Removing {namespace_id}") as say:

        def count(more: int) -> None:
            nonlocal removed
            removed += more
            say(f"Removing {namespace_id}: {removed} items are gone")

        return repo.purge_namespace(namespace_id, principal, count)


def described(namespace_id: str, orphaned: Sequence[Namespace]) -> str:
    """Name a namespace that is to be removed.

    Raises:
        NamespaceNotFoundError: None of that id was deleted.
    """
    for one in orphaned:
        if one.id == namespace_id:
            return f"namespace {namespace_id}, which was called {one.name}, and everything in it"
    raise NamespaceNotFoundError(namespace_id)


@contextmanager
def known_by_id(namespace_id: str) -> Iterator[None]:
    """Say where ids are found if there is none such: a name is easily given in place of one."""
    try:
        check_namespace_id(namespace_id)
        yield
    except (NamespaceNotFoundError, ValidationError) as error:
        listing = calling("namespace orphans", PLACE)
        reason = f"no deleted namespace has the id {namespace_id!r}; list them with their ids: {listing}"
        raise click.UsageError(reason) from error


def print_namespace(found: Namespace, as_json: bool) -> None:
    """Print a namespace."""
    if as_json:
        print_json(asdict(found))
        return
    rows = [("name", found.name), ("id", found.id), ("status", found.status.value), ("created", found.created_at)]
    if found.deleted_at is not None:
        rows.append(("deleted", found.deleted_at))
    print_grid(Grid([Column("namespace"), Column("")], rows))
