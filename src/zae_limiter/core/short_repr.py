"""Make texts of values that are short enough for a message, whatever the value."""

import reprlib


class _ShortRepr(reprlib.Repr):
    """Make a repr that is short enough for a message, whatever the value."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 80

    def repr_int(self, x: int, level: int) -> str:
        """Return the digits of an integer; a very long one is described by its size."""
        if abs(x) < 10**40:
            return repr(x)
        return f"<an integer of {x.bit_length()} bits>"


short_repr = _ShortRepr().repr
"""Return a short text of a value."""
