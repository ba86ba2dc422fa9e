"""Write a self-contained HTML document in the style of this package: cards, facts and tables, no external resources."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from html import escape

from zae_limiter.core.lazy_dataclass import dataclass, field
from zae_limiter.visualization.style import SCRIPT, STYLE

# The policy allows one script, by its hash, so no name in the data can run another. Nothing is
# fetched.
_SCRIPT_HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
_POLICY = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{_SCRIPT_HASH}'"


@dataclass(frozen=True, slots=True)
class Document:
    """The frame of a page. ``generator`` is the tag that identifies its kind, and ``note`` ends its footer.

    ``filters`` are shown below the title, by name. ``made_at`` is the time of the page, None if
    unknown.
    """

    title: str
    generator: str
    note: str
    filters: Mapping[str, str] = field(default_factory=dict)
    made_at: str | None = None

    def page(self, cards: Sequence[str]) -> str:
        """Return the page with these cards."""
        return "\n".join([*self._head(), *self._top(), *cards, *self._foot()])

    def _head(self) -> list[str]:
        return [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            self.generator,
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="robots" content="noindex">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(self.title)}</title>",
            f"<style>\n{STYLE}\n</style>\n</head>\n<body>\n<main>",
        ]

    def _top(self) -> list[str]:
        chips = "".join(f"<li><span>{escape(name)}</span> {escape(text)}</li>" for name, text in self.filters.items())
        created = [] if self.made_at is None else [f'<p class="created">Created on {escape(self.made_at)}</p>']
        filters = [f'<ul class="filters">{chips}</ul>'] if chips else []
        return [f"<h1>{escape(self.title)}</h1>", *created, *filters]

    def _foot(self) -> list[str]:
        made = "Created by zae-limiter" if self.made_at is None else f"Created on {escape(self.made_at)} by zae-limiter"
        footer = f"<footer>{made}. {escape(self.note)}</footer>"
        return [footer, f"</main>\n<script>{SCRIPT}</script>\n</body>\n</html>"]


def facts_list(facts: Mapping[str, str]) -> str:
    """Return facts, each below its name; the values are HTML."""
    return f"<dl>{''.join(f'<div><dt>{name}</dt><dd>{fact}</dd></div>' for name, fact in facts.items())}</dl>"


def table_card(title: str, about: str, head: str, rows: Sequence[str]) -> str:
    """Return a table in a box that scrolls if the table is larger; all but the title are HTML."""
    return "\n".join(
        [
            f'<section class="card">\n<h2>{title}</h2>\n<p class="sub">{about}</p>',
            f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">\n<table>',
            f"<thead><tr>{head}</tr></thead>\n<tbody>",
            *(f"<tr>{row}</tr>" for row in rows),
            "</tbody>\n</table>\n</div>\n</section>",
        ]
    )
