#!/bin/sh
# Create .venv with a Python that fits and install the pinned packages and this project into it.
# Called by make whenever pyproject.toml or requirements.lock has changed; needs nothing but Python and a network.
set -eu
cd "$(dirname "$0")/.."

fits() { # interpreter: is it there, does it start, and is its version one that all pinned packages have?
    command -v "$1" >/dev/null 2>&1 &&
        "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1
}

if ! fits .venv/bin/python || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    rm -rf .venv
    found=""
    for name in python3.13 python3.12 python3.11 python3 python; do
        fits "$name" || continue
        found=$name
        "$name" -c 'import ensurepip, venv' >/dev/null 2>&1 || continue
        echo "set-up: creating .venv with $("$name" --version) ($(command -v "$name"))"
        "$name" -m venv .venv
        break
    done
    if [ -z "$found" ]; then
        echo "error: Python 3.11, 3.12 or 3.13 is needed, and none of them is on the PATH." >&2
        exit 1
    fi
    if [ ! -x .venv/bin/python ]; then
        echo "error: $found has no venv module; install it (on Debian and Ubuntu: apt install $found-venv)." >&2
        exit 1
    fi
fi

started=$(date +%s)
step() { # what took the seconds since the last step
    now=$(date +%s)
    echo "set-up: $1 took $((now - started)) s"
    started=$now
}

install() { # requirements file: the packages that it names, which are all that they need
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --use-pep517 --require-hashes --no-compile \
        --no-deps -r "$1"
}

echo "set-up: installing the packages of requirements.lock (1.2 GB with Spark; again only after a change)"
# Spark is as much work as all others: it is installed beside them. pip makes a wheel of it, and unpacks that: to
# compress it would take half of the time.
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT
awk -v parts="$parts" '/^[^ #]/ { spark = /^pyspark==/ } { print > (parts (spark ? "/spark" : "/others")) }' \
    requirements.lock
printf '[bdist_wheel]\ncompression = stored\n' >"$parts/wheels.cfg"
DIST_EXTRA_CONFIG=$parts/wheels.cfg install "$parts/spark" &
spark=$!
install "$parts/others" || { kill "$spark"; exit 1; }
wait "$spark"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
# pip would do this on one core. Files that are no Python of this version do not matter. Almost half of them
# are tests of packages, and what only an installation needs.
.venv/bin/python -m compileall -q -j 0 -x '/(tests|pip|setuptools|mypy)/' .venv/lib cep spark_runtime scenarios >/dev/null 2>&1 || :
step "the installation"
touch .venv/.set-up
