#!/bin/sh
# Say in one sentence what is missing when there is no Java that Spark 4 can run on, before anything is installed.
java="java"
[ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ] && java="$JAVA_HOME/bin/java"
version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)
if [ -z "$version" ]; then
    echo "error: Spark needs Java 17 or later, and no java is on the PATH or in JAVA_HOME." >&2
    exit 1
fi
if [ "$version" -lt 17 ]; then
    echo "error: Spark needs Java 17 or later, and $java is version $version; put a newer one on the PATH or in JAVA_HOME." >&2
    exit 1
fi
