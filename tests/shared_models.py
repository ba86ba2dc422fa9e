"""Share botocore's parsed service models between the sessions of a process.

Every session parses the JSON files of its services again, and searches its folders for all services. That is half of
the CPU time of a test that deploys a stack. Tests make thousands of sessions, a program makes one or two.

A session shares its models with all its clients, so they are only read.
"""

from typing import Any

from botocore.loaders import JSONFileLoader, Loader

_caches: dict[tuple[str, ...], dict[Any, Any]] = {}
_private = Loader.__init__


def share_models() -> None:
    """Let all sessions that search the same folders share what they have read."""
    Loader.__init__ = _shared


def _shared(loader: Loader, *arguments: Any, **options: Any) -> None:
    _private(loader, *arguments, **options)
    if type(loader.file_loader) is JSONFileLoader:
        loader._cache = _caches.setdefault(tuple(loader.search_paths), loader._cache)
