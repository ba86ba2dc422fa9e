"""The examples of the specification, as data."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).with_name("examples.toml")
_PLACEHOLDER = re.compile(r"<[a-z-]+>")


@dataclass(frozen=True, slots=True)
class Example:
    """An example and what surrounds it; `superseded` is the reason why it does not run, None if it runs."""

    document: str
    line: int
    language: str
    text: str
    before: str = ""
    after: str = ""
    warns: str | None = None
    placeholders: tuple[str, ...] = ()
    superseded: str | None = None

    @property
    def place(self) -> str:
        """The document and the line, for messages."""
        return f"{self.document}:{self.line}"

    @property
    def filled_text(self) -> str:
        """The text with values for its placeholders."""
        values = iter(self.placeholders)
        return _PLACEHOLDER.sub(lambda _: next(values), self.text) if self.placeholders else self.text


def examples() -> list[Example]:
    """Return all examples, in the order of the documents."""
    return [Example(**one) for one in tomllib.loads(DATA.read_text(encoding="utf-8"))["example"]]
