"""Runs a program again for every sequence of choices, with at most so many that deviate from the usual one."""

from collections.abc import Iterator
from typing import NamedTuple


class Choice(NamedTuple):
    """One choice: the number that was chosen, of how many, and its name. 0 is the usual one."""

    chosen: int
    options: int
    name: str


class Choices:
    """The choices of one run. The first ones are given; all later ones are the usual ones."""

    def __init__(self, given: list[int], most: int) -> None:
        self._given = given
        self._most = most
        self.made: list[Choice] = []

    def choose(self, *names: str) -> str:
        """Return one of several names, the usual one first. Only that is possible once all deviations are used."""
        deviated = sum(1 for one in self.made if one.chosen)
        options = len(names) if deviated < self._most else 1
        number = self._given[len(self.made)] if len(self.made) < len(self._given) else 0
        self.made.append(Choice(number, options, names[number]))
        return names[number]

    @property
    def deviations(self) -> list[str]:
        """The choices that are not the usual ones, each with its number."""
        return [f"{number}: {one.name}" for number, one in enumerate(self.made) if one.chosen]


def every_run(most: int) -> Iterator[Choices]:
    """Yield the choices of every run. Each must be used up before the next is taken."""
    given: list[int] = []
    while True:
        choices = Choices(given, most)
        yield choices
        made = [one.chosen for one in choices.made]
        # The last choice that has a further option is advanced; everything after it is chosen again.
        while made and made[-1] + 1 >= choices.made[len(made) - 1].options:
            made.pop()
        if not made:
            return
        given = [*made[:-1], made[-1] + 1]
