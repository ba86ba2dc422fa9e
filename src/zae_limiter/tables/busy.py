"""What a table raises when it cannot go on without waiting."""


class Busy(Exception):  # noqa: N818 - an answer that the port waits for, no error a user meets
    """Another process or thread holds the file; nothing was read or changed, and the same call may be made again."""
