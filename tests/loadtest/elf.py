"""Facts of compiled modules: the machine that they are for, and the glibc that they need."""

import re

ELF = b"\x7fELF"
MACHINES = {62: "x86_64", 183: "aarch64"}


def is_elf(content: bytes) -> bool:
    return content.startswith(ELF)


def machine_of(content: bytes) -> str:
    """Return the architecture of a compiled module."""
    number = int.from_bytes(content[18:20], "little" if content[5] == 1 else "big")
    return MACHINES.get(number, str(number))


def glibc_of(content: bytes) -> tuple[int, int]:
    """Return the newest version of glibc whose symbols a module names."""
    found = re.findall(rb"\bGLIBC_(\d+)\.(\d+)", content)
    return max(((int(major), int(minor)) for major, minor in found), default=(0, 0))
