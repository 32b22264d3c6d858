"""Folders in which all paths of a pipeline file must be, if the file is trusted only that far."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://([^/]*)(.*)", re.DOTALL)


def root_of(text: str) -> str:
    """Return a folder, or the address of one in another file system, in the form that is compared.

    Links on the way are followed, `..` is removed, and `file://` is the disk of this machine.
    """
    found = _SCHEME.fullmatch(text)
    if found is None or found[1].lower() == "file":
        return posixpath.realpath(text if found is None else found[3] or "/")  # no error at links in a circle
    path = posixpath.normpath(f"/{found[3]}").replace("//", "/")
    return f"{found[1].lower()}://{found[2]}{path}"


def is_inside(path: str, roots: Sequence[str]) -> bool:
    """Return whether `path` is one of the `roots` (`root_of`) or below one. Without roots, any path is.

    `path` is absolute or has a scheme. It may be a pattern; links that its names match are not followed here.
    """
    if not roots:
        return True
    place = root_of(path)
    return any(place == root or place.startswith(f"{root.rstrip('/')}/") for root in roots)
