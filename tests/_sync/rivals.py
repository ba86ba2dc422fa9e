"""Tables where others get between, and tables that answer little at a time."""  # generated from _async by tools/mirror.py; do not edit

from zae_limiter.schema.operations import Page

from .clients import Wrapped


class Overtaken(Wrapped):
    """A table where somebody else gets in just before this client's transactions, as often as there are calls."""

    def __init__(self, table):
        super().__init__(table)
        self.overtakers = []

    def transact(self, operations, token, *, until_s=None):
        if self.overtakers:
            self.overtakers.pop(0)()
        return super().transact(operations, token, until_s=until_s)


class Sparing(Wrapped):
    """A table that answers a query with two items at a time, as one does whose pages are bounded in bytes."""

    def query(self, query):
        page = super().query(query)
        if len(page.items) <= 2:
            return page
        names = ("PK", "SK", f"{query.index}PK", f"{query.index}SK") if query.index else ("PK", "SK")
        return Page(page.items[:2], {name: page.items[1][name] for name in names})
