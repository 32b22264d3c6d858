"""``python tools/servers/choose_jars.py NAME``: writes `jars/NAME.sha256`, after `jars/NAME.xml` has changed.

The Ivy that PySpark brings finds what the named jars need on Maven Central. `fetch.py` downloads what the
list contains, and nothing else. It takes 6 s instead of 40, because it asks for one file of each jar.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from spark_runtime.sessions.java import find_java

JARS = Path(__file__).parent / "jars"


def main() -> None:
    """Write the list that the argument names."""
    name = sys.argv[1]
    with tempfile.TemporaryDirectory() as place:
        command = [find_java().command, "-cp", str(Path(pyspark.__file__).parent / "jars" / "*")]
        command += ["org.apache.ivy.Main", "-settings", str(JARS / "ivysettings.xml")]
        command += ["-ivy", str(JARS / f"{name}.xml"), "-cache", f"{place}/cache", "-types", "jar", "bundle"]
        file = "[organisation]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"
        subprocess.run([*command, "-retrieve", f"{place}/jars/{file}"], check=True)  # noqa: S603 - our own Java
        lines = []
        for jar in sorted(Path(place, "jars").rglob("*.jar"), key=lambda jar: jar.name):
            organisation, *rest = jar.relative_to(f"{place}/jars").parts
            digest = hashlib.sha256(jar.read_bytes()).hexdigest()
            lines.append(f"{digest}  {'/'.join((*organisation.split('.'), *rest))}\n")
    (JARS / f"{name}.sha256").write_text("".join(lines))


if __name__ == "__main__":
    main()
