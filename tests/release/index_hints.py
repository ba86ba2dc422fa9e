"""Find text that tells a reader to install this project by its name, from a package index."""

import re

# An installer, its options and other packages, then our name as a whole word. A URL after @ is no index, and neither is
# a path or a URL that ends with the name.
_COMMAND = re.compile(
    r"""\b(?:pip3?|pipx|uvx?|poetry|pdm|conda|mamba|hatch)\b [^\n|;&]*? \b(?:install|add|run)\b
        [^\n|;&]*? (?<=[\s"'`=]) zae[-_.]limiter (?![\w./-]) (?! (?:\[[^\]\n]*\])? ["']? \s+ @ )""",
    re.VERBOSE | re.IGNORECASE,
)
# An extra of the name, without a URL: a reader would install it.
_EXTRA = re.compile(r"(?<![\w./-])zae[-_.]limiter\[[^\]\n]*\](?!\s+@)", re.IGNORECASE)
# A line of a requirements file.
_REQUIREMENT = re.compile(r"^zae[-_.]limiter\s*(?:[=<>~!].*|\[.*)?$", re.IGNORECASE | re.MULTILINE)


def index_hints(text: str, *, is_requirements: bool = False) -> list[str]:
    """Return the hints to an index in a text; each line of a requirements file is one if it names the project."""
    patterns = [_COMMAND, _EXTRA, *([_REQUIREMENT] if is_requirements else [])]
    return [found[0] for pattern in patterns for found in pattern.finditer(text)]
