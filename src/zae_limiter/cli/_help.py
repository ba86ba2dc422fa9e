"""Text below the options of a command's help, kept as it is written."""

# Tells click to leave a paragraph's line breaks alone.
_AS_WRITTEN = "\b"


def examples(*commands: str) -> str:
    """Write commands that can be copied."""
    return section("Examples" if len(commands) > 1 else "Example", *commands)


def section(title: str, *lines: str) -> str:
    """Write lines below a title."""
    return "\n".join([_AS_WRITTEN, f"{title}:", *(f"  {line}" for line in lines)])


def json_shape(*lines: str) -> str:
    """Write what ``--json`` prints."""
    return section("JSON", *lines)


def help_of(*sections: str) -> str:
    """Join sections."""
    return "\n\n".join(sections)
