"""Tables where another client intervenes, and tables that return short pages."""

from zae_limiter.schema.operations import Page

from .clients import Wrapped


class RacedTable(Wrapped):
    """A table where another client acts just before this client's next transactions."""

    def __init__(self, table):
        super().__init__(table)
        self.rivals = []

    async def transact(self, operations, token, *, until_s=None):
        if self.rivals:
            await self.rivals.pop(0)()
        return await super().transact(operations, token, until_s=until_s)


class ShortPagesTable(Wrapped):
    """A table whose queries return at most two items per page, like a limit in bytes would."""

    async def query(self, query):
        page = await super().query(query)
        if len(page.items) <= 2:
            return page
        names = ("PK", "SK", f"{query.index}PK", f"{query.index}SK") if query.index else ("PK", "SK")
        return Page(page.items[:2], {name: page.items[1][name] for name in names})
