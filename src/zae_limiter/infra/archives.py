"""Write zip archives that depend on their content only. Pure."""

import io
import zipfile
from collections.abc import Mapping

_EPOCH = (1980, 1, 1, 0, 0, 0)
_READABLE = 0o644 << 16
_UNIX = 3


def zip_of(files: Mapping[str, bytes], *, compress: bool = True) -> bytes:
    """Return an archive of files by name; the same files always make the same bytes."""
    kind = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name in sorted(files):
            archive.writestr(_entry(name, kind), files[name])
    return written.getvalue()


def _entry(name: str, kind: int) -> zipfile.ZipInfo:
    """Return an entry without the time and the machine of its creation."""
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = kind
    entry.external_attr = _READABLE
    entry.create_system = _UNIX
    return entry
