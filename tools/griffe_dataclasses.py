"""Show the constructors of dataclasses in the API reference: griffe only knows the decorator of the standard library.

``mkdocs.yml`` names this extension. Type checkers resolve ``core/lazy_dataclass.py`` in the same way.
"""

from typing import Any

import griffe

_OURS = "zae_limiter.core.lazy_dataclass."
_STANDARD = "dataclasses."


class LazyDataclasses(griffe.Extension):
    """Let names that are imported from ``lazy_dataclass`` resolve to those of the standard library."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Label a dataclass as griffe does."""
        if any(decorator.callable_path == f"{_OURS}dataclass" for decorator in cls.decorators):
            cls.labels.add("dataclass")

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        """Change the targets of the imports of a module."""
        for member in mod.members.values():
            if isinstance(member, griffe.Alias) and member.target_path.startswith(_OURS):
                member.target_path = _STANDARD + member.target_path.removeprefix(_OURS)
