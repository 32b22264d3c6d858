"""`python -m tests.conformance [FILE]` answers cases, `--compare FILE` compares with the recorded answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from tests.conformance.answers import answer
from tests.conformance.case_files import read_cases


def main(arguments: list[str]) -> int:
    """Run the command."""
    if arguments and arguments[0] == "--compare":
        from tests.conformance.compare import report

        return report(arguments[1:])
    for case in _cases(arguments):
        print(json.dumps(answer(case)), flush=False)
    return 0


def _cases(arguments: list[str]) -> Iterator[dict[str, Any]]:
    if not arguments:
        yield from (json.loads(line) for line in sys.stdin if line.strip())
        return
    for name in arguments:
        yield from read_cases(name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
