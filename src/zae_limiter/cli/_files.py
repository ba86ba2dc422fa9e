"""Write files atomically, and format their sizes."""

import os
from pathlib import Path

import click


def write_file(path: Path, content: bytes, option: str) -> None:
    """Write the file that an option selects.

    Raises:
        click.BadParameter: It cannot be written; an existing file is unchanged.
    """
    try:
        written_whole(path, content)
    except OSError as error:
        reason = f"cannot write {str(path)!r}: {error.strerror}"
        raise click.BadParameter(reason, click.get_current_context(), param_hint=option) from error


def written_whole(path: Path, content: bytes) -> None:
    """Write a file atomically. A path that is not a regular file, such as a pipe, is written directly."""
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def in_bytes(size: int) -> str:
    """Format a size for people: ``12.3 KB``."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"
