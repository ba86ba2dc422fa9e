"""Define ``zae-limiter backup`` and ``restore``: copy a SQLite store to a file, and back into the store."""

from pathlib import Path

import click

from zae_limiter.cli._confirm import require_consent
from zae_limiter.cli._copying import copying_shown
from zae_limiter.cli._files import in_bytes
from zae_limiter.cli._help import examples, help_of, json_shape, section
from zae_limiter.cli._options import json_option, yes_option
from zae_limiter.cli._output import print_json, print_line, print_note
from zae_limiter.cli._place import Target, announce, file_of, target_options
from zae_limiter.core.errors import UnsupportedByBackendError
from zae_limiter.tables.sqlite.backup import Copied, Restored, back_up, check_backup, restore

BACKUP = (
    "zae-limiter backup limiter-2026-11-17.db --url sqlite:///limiter.db",
    "zae-limiter backup /srv/backups/limiter.db --yes",
)
RESTORE = ("zae-limiter restore limiter-2026-11-17.db --url sqlite:///limiter.db",)
BACKUP_JSON = json_shape(
    '{"store": "/srv/limiter.db", "backup": "/srv/backups/limiter.db", "items": 34, "bytes": 20480}'
)
RESTORE_JSON = json_shape(
    '{"store": "/srv/limiter.db", "backup": "/srv/backups/limiter.db", "items": 34, "bytes": 20480,',
    ' "saved_as": "/srv/limiter.db.before-restore"}',
)
EXIT_CODES = section(
    "Exit codes",
    "0   done",
    "1   you declined, or a newer version of zae-limiter wrote the file",
    "2   the store is not a SQLite file, or FILE is the store itself",
    "69  a file is missing, damaged, not writable or locked; the store is unchanged",
)
FILE = click.Path(dir_okay=False, path_type=Path)

_INSTEAD = {
    "memory": "use sqlite:///file.db to keep data in a file",
    "dynamodb": "use point-in-time recovery of its table: aws dynamodb restore-table-to-point-in-time",
}


@click.command(
    "backup",
    short_help="Copy a SQLite store to a file.",
    epilog=help_of(examples(*BACKUP), BACKUP_JSON, EXIT_CODES),
)
@click.argument("file", type=FILE, metavar="FILE")
@target_options
@yes_option
@json_option
def backup_command(target: Target, file: Path, yes: bool, as_json: bool) -> None:
    """Copy a SQLite store to FILE, as it is at this moment, and check the copy.

    Other processes continue to use the store. FILE appears when it is complete, and only you can read it. Before an
    existing FILE is replaced, the command asks for confirmation.
    """
    path = path_of(target, "backup")
    announce(target)
    if file.exists() and not yes:
        require_consent(f"Replace {file}?", "Nothing was replaced.", "replace it")
    with copying_shown() as listener:
        done = back_up(path, str(file), listener)
    print_backup(path, file, done, as_json)


@click.command(
    "restore",
    short_help="Replace the content of a SQLite store with a backup.",
    epilog=help_of(examples(*RESTORE), RESTORE_JSON, EXIT_CODES),
)
@click.argument("file", type=FILE, metavar="FILE")
@target_options
@yes_option
@json_option
def restore_command(target: Target, file: Path, yes: bool, as_json: bool) -> None:
    """Replace the content of a SQLite store with that of FILE, which the backup command wrote.

    FILE is checked first. The old content is kept beside the store, in a file whose name ends in
    .before-restore. Other processes continue on the new content; their writes wait while it is
    copied. If the command is interrupted before its last step, Finishing, nothing has changed.
    """
    path = path_of(target, "restore")
    announce(target)
    check_backup(str(file), path)
    if not yes:
        require_consent(f"Replace the content of {path} with {file}?", "Nothing was restored.", "restore it")
    with copying_shown() as listener:
        done = restore(str(file), path, listener)
    print_restored(path, file, done, as_json)


def path_of(target: Target, operation: str) -> str:
    """Return the path of the SQLite file of a store.

    Raises:
        UnsupportedByBackendError: The store is not a SQLite file.
    """
    path = file_of(target)
    if path is None or path == "memory://":
        backend = "dynamodb" if path is None else "memory"
        raise UnsupportedByBackendError(operation, backend, _INSTEAD[backend])
    return str(Path(path).absolute())


def print_backup(path: str, file: Path, done: Copied, as_json: bool) -> None:
    """Print what was copied."""
    if as_json:
        print_json({"store": path, "backup": str(file.absolute()), "items": done.items, "bytes": done.size_bytes})
        return
    print_line(f"Backed up {done.items:,} items to {file} ({in_bytes(done.size_bytes)}).")


def print_restored(path: str, file: Path, done: Restored, as_json: bool) -> None:
    """Print what was restored, and where the old content is."""
    if as_json:
        facts = {"store": path, "backup": str(file.absolute()), "items": done.items, "bytes": done.size_bytes}
        print_json({**facts, "saved_as": done.saved_as})
        return
    print_line(f"Restored {done.items:,} items from {file} ({in_bytes(done.size_bytes)}).")
    if done.saved_as is not None:
        print_note(f"The old content is in {done.saved_as}.")
