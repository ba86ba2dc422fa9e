"""Name resources after the templates of routes, as routers write them."""

import re
from functools import lru_cache
from hashlib import blake2b

from zae_limiter.core.names import MAX_RESOURCE_LENGTH

# A parameter, as routers write it: "{id}", "{id:int}", "<id>", "<int:id>", "(?P<id>[0-9]+)".
_BRACES = re.compile(r"\{\*?([A-Za-z_][A-Za-z0-9_]*)(?::[^{}]*)?\}")
_GROUP = re.compile(r"\(\?P<([A-Za-z_][A-Za-z0-9_]*)>(?:[^()]|\([^()]*\))*\)")
_ANGLES = re.compile(r"<(?:[^<>:]+:)?([A-Za-z_][A-Za-z0-9_]*)>")
_REJECTED = re.compile(r"[^A-Za-z0-9_./:@+|=-]")


# Literal text that a name without a hash could have for another reason: a parameter, the root, or a changed begin.
_AMBIGUOUS = re.compile(r"(?:^|/):|^@|^root$")


@lru_cache(maxsize=4096)
def resource_of(template: str) -> str:
    """Return the name of the resource of a route: ``/items/{item_id}`` becomes ``items/:item_id``.

    The root is ``root``. Two templates have the same name only if they differ in slashes at their ends, or in how a
    parameter is converted. A name that would be too long, or that another template could have, ends with a hash.
    """
    # Regular expressions of Django begin without a slash.
    plain = template if template.startswith("/") else template.removeprefix("^").removesuffix("$")
    literal = plain.strip("/")
    text = _ANGLES.sub(r":\1", _BRACES.sub(r":\1", _GROUP.sub(r":\1", literal))) or "root"
    name = _REJECTED.sub("_", text)
    if not (name[0].isalpha() or name[0] == "@"):
        name = f"@{name}"
    if _AMBIGUOUS.search(literal) or _REJECTED.search(text) or len(name) > MAX_RESOURCE_LENGTH:
        digest = blake2b(literal.encode(errors="surrogatepass"), digest_size=4).hexdigest()
        name = f"{name[: MAX_RESOURCE_LENGTH - 9]}.{digest}"
    return name
