"""Define ``zae-limiter namespace``: manage isolated parts of a limiter, from register to purge."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from zae_limiter.cli._confirm import ask_or_warn, require_consent
from zae_limiter.cli._groups import CommandGroup
from zae_limiter.cli._help import examples, help_of, json_shape
from zae_limiter.cli._hints import PLACE, calling
from zae_limiter.cli._options import json_option, principal_option, yes_option
from zae_limiter.cli._output import Column, Grid, print_grid, print_json, print_line, print_note, working
from zae_limiter.cli._place import Command, Target, target_options
from zae_limiter.cli._store import opened_registry
from zae_limiter.core.errors import NamespaceNotFoundError, ValidationError
from zae_limiter.core.lazy_dataclass import asdict
from zae_limiter.core.namespace import DEFAULT_NAMESPACE, Namespace, check_namespace_id

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


def registry_options(command: Command) -> Command:
    """Add the options of all commands for namespaces; the command takes them as ``as_json`` and ``target``."""
    return json_option(target_options(command))


@click.group(
    cls=CommandGroup,
    aliases={"create": "register"},
    short_help="Manage isolated parts of a limiter.",
    epilog=examples(REGISTERING, LISTING),
)
def namespace() -> None:
    """Manage namespaces: isolated parts of a limiter, for example one per tenant.

    Each namespace has its own entities, limits and usage. Data commands use the one that
    --namespace selects.
    """


@namespace.command(
    "register",
    short_help="Register namespaces (alias: create).",
    epilog=help_of(examples(REGISTERING), json_shape("{name: id, for each namespace}")),
)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@principal_option
@registry_options
def register(names: tuple[str, ...], principal: str | None, as_json: bool, target: Target) -> None:
    """Register namespaces, and show their ids. Existing ones are left as they are."""
    with opened_registry(target, create=True) as repo, working(f"Registering {len(names)} namespaces"):
        ids = repo.register_namespaces(names, principal)
    if as_json:
        print_json(ids)
    else:
        print_grid(Grid([Column("namespace"), Column("id")], list(ids.items())))


@namespace.command("list", short_help="List the active namespaces.", epilog=help_of(examples(LISTING), SHAPES))
@registry_options
def list_namespaces(as_json: bool, target: Target) -> None:
    """List the active namespaces, sorted by name."""
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
@registry_options
def show(name: str, as_json: bool, target: Target) -> None:
    """Show an active namespace."""
    with opened_registry(target) as repo:
        found = repo.get_namespace(name)
    print_namespace(found, as_json)


@namespace.command(
    "delete", short_help="Delete a namespace, but keep its data.", epilog=help_of(examples(DELETING), SHAPE)
)
@click.argument("name", metavar="NAME")
@yes_option
@principal_option
@registry_options
def delete(name: str, yes: bool, principal: str | None, as_json: bool, target: Target) -> None:
    """Delete a namespace and free its name.

    Requests in it are refused. Its data is kept until recover restores it or purge removes it.
    Because nothing is lost, the command only prints a warning if there is no terminal.
    """
    with opened_registry(target) as repo:
        if not yes and name != DEFAULT_NAMESPACE:
            found = repo.get_namespace(name)
            lost = f"requests in namespace {found.name} are refused until it is recovered"
            ask_or_warn(
                f"Delete namespace {found.name}, but keep its data?", f"{lost}; pass --yes to skip this warning"
            )
        deleted = repo.delete_namespace(name, principal)
    if as_json:
        print_json(asdict(deleted))
        return
    print_line(f"Deleted namespace {deleted.name}; its data is kept under the id {deleted.id}.")
    print_note(f"To restore it:              {calling(f'namespace recover {deleted.id}', PLACE)}")
    print_note(f"To remove it permanently:   {calling(f'namespace purge {deleted.id}', PLACE)}")


@namespace.command("recover", short_help="Restore a deleted namespace.", epilog=help_of(examples(RECOVERING), SHAPE))
@click.argument("namespace_id", metavar="ID")
@principal_option
@registry_options
def recover(namespace_id: str, principal: str | None, as_json: bool, target: Target) -> None:
    """Restore a deleted namespace under its name, with all its data."""
    with known_by_id(namespace_id), opened_registry(target) as repo:
        recovered = repo.recover_namespace(namespace_id, principal)
    print_namespace(recovered, as_json)


@namespace.command("orphans", short_help="List the deleted namespaces.", epilog=help_of(examples(ORPHANS), SHAPES))
@registry_options
def orphans(as_json: bool, target: Target) -> None:
    """List the namespaces that were deleted but not purged, the oldest deletion first."""
    with opened_registry(target) as repo:
        found = repo.list_orphan_namespaces()
    if as_json:
        print_json([asdict(one) for one in found])
    elif found:
        columns = [Column("id"), Column("name"), Column("status"), Column("deleted")]
        print_grid(Grid(columns, [(one.id, one.name, one.status.value, one.deleted_at or "") for one in found]))
    else:
        print_note("There are no deleted namespaces.")


@namespace.command(
    "purge",
    short_help="Remove a deleted namespace permanently.",
    epilog=help_of(examples(PURGING), json_shape("{id, removed: number of items}")),
)
@click.argument("namespace_id", metavar="ID")
@yes_option
@principal_option
@registry_options
def purge(namespace_id: str, yes: bool, principal: str | None, as_json: bool, target: Target) -> None:
    """Remove a deleted namespace and all its data permanently. Repeat it to finish an interrupted purge."""
    with known_by_id(namespace_id), opened_registry(target) as repo:
        if not yes:
            require_consent(f"Remove {described(namespace_id, repo.list_orphan_namespaces())} permanently?")
        removed = remove_for_good(repo, namespace_id, principal)
    if as_json:
        print_json({"id": namespace_id, "removed": removed})
    else:
        print_line(f"Removed namespace {namespace_id} and its {removed} items.")


def remove_for_good(repo: "SyncRepository", namespace_id: str, principal: str | None) -> int:
    """Purge a namespace, and show the progress."""
    removed = 0
    with working(f"Removing {namespace_id}") as say:

        def count(more: int) -> None:
            nonlocal removed
            removed += more
            say(f"Removing {namespace_id}: {removed} items removed")

        return repo.purge_namespace(namespace_id, principal, count)


def described(namespace_id: str, orphaned: Sequence[Namespace]) -> str:
    """Describe a namespace that is to be removed.

    Raises:
        NamespaceNotFoundError: No deleted namespace has the id.
    """
    for one in orphaned:
        if one.id == namespace_id:
            return f"namespace {namespace_id}, formerly {one.name}, and all its data"
    raise NamespaceNotFoundError(namespace_id)


@contextmanager
def known_by_id(namespace_id: str) -> Iterator[None]:
    """Suggest how to find the id if none matches, because a name is easily passed instead of an id."""
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
