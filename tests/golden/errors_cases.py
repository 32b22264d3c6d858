"""Examples of every error code, and the texts that users read about them.

Each file in `errors/` is a rule file or a streams file with a problem. The .txt file beside it is the text
that users read. ``python -m tests.golden.errors_cases`` writes the .txt files again. Read the difference
before you commit it.
"""

from __future__ import annotations

from pathlib import Path

from cep.compiler.compile import check_sources, compile_rules
from cep.diagnostics.diagnostic import in_order, render
from cep.diagnostics.limits import MAX_BYTES, MAX_TOKENS
from cep.errors import RuleError, Source
from cep.settings.schema_file import load_streams, parse_streams

FOLDER = Path(__file__).parent / "errors"

_RULE = "RULE r\nFROM payments\nPARTITION BY card\nPATTERN a -> b\nWITHIN 1 HOUR\n"
_BRANCHES = [f"v{number}" for number in range(65)]

BUILT: dict[str, str] = {
    "E0901": "-- " + "x" * MAX_BYTES,
    "E0904": _RULE.replace("a -> b", " | ".join(_BRANCHES))
    + "DEFINE\n"
    + ",\n".join(f"  {name} AS items = {number}" for number, name in enumerate(_BRANCHES)),
    "E0908": _RULE.replace("a -> b", "a" + " -> b?" * 150) + "DEFINE a AS items = 1, b AS items = 2",
    "E0908_absences": _RULE.replace(
        "a -> b", "a " + " -> ".join(f"(c? -> !v{number} | d?)" for number in range(15)) + " -> b"
    )
    + "DEFINE "
    + ", ".join(f"{name} AS items = 1" for name in ("a", "b", "c", "d", *(f"v{n}" for n in range(15)))),
    "E0909": _RULE
    + "DEFINE b AS "
    + " AND ".join(f"SUM(items) OVER LAST {n} EVENTS > 0" for n in range(1, 66)),
    "E0910": _RULE.replace("a -> b", "a " * MAX_TOKENS),
    "E0911": "".join(
        f"RULE r{number} FROM payments PARTITION BY card PATTERN a WITHIN 1 HOUR DEFINE a AS items = 1\n"
        for number in range(501)
    ),
    "E0912": _RULE.replace("a -> b", "a" * 256),
    "E0912_text": f"RULE r TITLE '{'x' * 10_000}'",
    "E0913": _RULE
    + "DEFINE a AS "
    + "CASE " * 9
    + "items"
    + " WHEN 1 THEN 1 WHEN 2 THEN 2 WHEN 3 THEN 3 END" * 9
    + " > 0",
    "E0914": _RULE.replace("a -> b", " | ".join(f"v{number}" for number in range(201))),
    "E0915": _RULE + "DEFINE a AS " + " AND ".join(f"amont > {number}" for number in range(60)),
    "E0905": _RULE
    + "DEFINE b AS items = 1\nMEASURES\n"
    + ",\n".join(f"  SUM(a.items + {n}) AS m{n}" for n in range(65)),
}
"""Name of an example -> its text, for rule files that are too long to be stored."""


def names() -> list[str]:
    """Return the names of all examples."""
    files = [path.name for path in FOLDER.iterdir() if path.suffix in (".cep", ".yaml")]
    return sorted({*files, *(f"{name}.cep" for name in BUILT), "E0414.yaml"} - {"streams.yaml"})


def said_about(name: str) -> str:
    """Return the text that a user reads about the example `name`."""
    path = FOLDER / name
    if name == "E0414.yaml":
        try:
            load_streams("no/such/streams.yaml")
        except RuleError as error:
            return render(error.diagnostics) + "\n"
    text = BUILT[path.stem] if path.stem in BUILT else path.read_text()
    source = Source(name, text)
    if path.suffix == ".yaml":
        return render(parse_streams(source)[1]) + "\n"
    streams = load_streams(FOLDER / "streams.yaml")
    rules, problems = check_sources([source], streams)
    if not any(problem.is_error for problem in problems):
        try:
            compile_rules(rules, streams)
        except RuleError as error:
            problems = (*problems, *error.diagnostics)
    return render(in_order(problems)) + "\n"


def golden_path(name: str) -> Path:
    """Return the file with the reviewed text about the example `name`."""
    return FOLDER / f"{Path(name).stem}.txt"


if __name__ == "__main__":
    for example in names():
        golden_path(example).write_text(said_about(example))
