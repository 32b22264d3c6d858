"""Whether PySpark is installed, and new enough. It is not imported: that takes a third of a second."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cep.errors import SetupError

OLDEST = (3, 5)
"""The oldest PySpark that works, as major and minor version; `make versions` tries it."""

_HELP = "pip install 'spark-cep[spark]'"


def check_pyspark() -> str:
    """Return the version of PySpark. Raise SetupError unless it is installed and new enough (E0801)."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SetupError("E0801", "PySpark is not installed", f"install the extra: {_HELP}")
    loader: Any = spec.loader  # not the file system: spark-submit has PySpark in a ZIP file
    text: str = loader.get_data(str(Path(spec.origin).with_name("version.py"))).decode()
    found = re.search(r"__version__[^=\n]*=\s*[\"']((\d+)\.(\d+)[^\"']*)", text)
    version, major, minor = found.groups() if found is not None else ("of an unknown version", "0", "0")
    if (int(major), int(minor)) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise SetupError("E0801", f"PySpark {version} is too old: {oldest} or later is needed", _HELP)
    return version
