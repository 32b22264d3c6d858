"""``python -m tests.bench.reading``: lines of JSON to columns, one core, processor time of an event.

An event has 160 bytes and 8 fields: a time, four texts, two numbers and a boolean. Paths:

- *lines to columns*: a block of lines, as it comes from a file;
- *messages to columns*: bytes objects, or a binary column of Arrow's;
- *file to events*: what a run reads, with dead letters and the check of times and keys;
- *Arrow, as before*: lines to columns without the kernel, by Arrow's parser and checks around it;
- the same where some lines are of another kind: dead letters, or such that the kernel does not take.

The no-op splits the bytes into lines. All is measured in one process in turns, the least of some repeats:
other work on the machine does not make it less.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random

import click
import pyarrow as pa

from cep.formats.files import read_events
from cep.formats.lines import Lines, lines_of_column
from cep.formats.text import json_lines
from cep.formats.text.json.columns import compile_kernel
from cep.schema.stream import Field, Stream
from tests.bench.figures import Figure, Target, report

STREAM = Stream(
    "payments",
    (
        Field("ts", "timestamp"),
        Field("id", "string"),
        Field("card", "string"),
        Field("merchant", "string"),
        Field("city", "string"),
        Field("amount", "double"),
        Field("attempt", "int"),
        Field("online", "boolean"),
    ),
    "ts",
)
BYTES = 160
N_EVENTS = 200_000
TARGET = Target(0.7, at_most=True)


def event(row: int, random: Random) -> bytes:
    """Return an event as a line, without a line feed."""
    second = row // 50 % 86_400
    values = {
        "ts": f"2024-05-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.{row % 1000:03}Z",
        "id": f"p{row:08}",
        "card": f"card-{random.randrange(10**6):06}",
        "merchant": f"m{random.randrange(10**4):04}",
        "city": random.choice(("Berlin", "Zürich", "Amsterdam", "Reykjavík")),
        "amount": round(random.uniform(1, 5000), 2),
        "attempt": random.randrange(1, 100),
        "online": random.random() < 0.5,
    }
    line = json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode()
    values["merchant"] = f"{values['merchant']}{'x' * (BYTES - len(line))}"
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode()


def least_seconds(runs: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Return the least processor time of each of some runs, which take turns."""
    seconds: list[list[float]] = [[] for _ in runs]
    for _ in range(repeats + 1):
        for run, found in zip(runs, seconds, strict=True):
            start = time.process_time()
            run()
            found.append(time.process_time() - start)
    return [min(found[1:]) for found in seconds]


def some_replaced(lines: Sequence[bytes], every: int, change: Callable[[bytes], bytes]) -> bytes:
    """Return lines as a block, one in `every` changed."""
    return b"".join((line if row % every else change(line)) + b"\n" for row, line in enumerate(lines))


def _parsed(parse: Callable[[Sequence[bytes], Stream], object], block: bytes) -> object:
    return parse(Lines.of_block(block), STREAM)


def figures(n: int, repeats: int) -> list[Figure]:
    """Return the figures of all paths."""
    random = Random(7)
    lines = [event(row, random) for row in range(n)]
    assert {len(line) for line in lines} == {BYTES}
    block = b"\n".join(lines) + b"\n"
    column = pa.array(lines, pa.binary())
    dead = some_replaced(lines, 100, lambda line: line[:-1])
    infinite = some_replaced(lines, 100, lambda line: line.replace(b'"amount":', b'"amount":Infinity,"was":'))
    spaced = some_replaced(lines, 1, lambda line: json.dumps(json.loads(line)).encode())
    odd = some_replaced(lines, 1, lambda line: line.replace(b'"ts"', b'"t\\u0073"'))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "events.jsonl"
        file.write_bytes(block)
        runs: dict[tuple[str, str], Callable[[], object]] = {
            ("lines to columns", "plain lines"): lambda: json_lines.parse(Lines.of_block(block), STREAM),
            ("Arrow, as before", "plain lines"): lambda: json_lines.parse_otherwise(lines, STREAM),
            ("file to events", "plain lines"): lambda: [len(c.events) for c in read_events(file, STREAM)],
            ("messages to columns", "bytes objects"): lambda: json_lines.parse(lines, STREAM),
            ("messages to columns", "a column"): lambda: json_lines.parse(lines_of_column(column), STREAM),
        }
        for case, other in (
            ("one line in 100 a dead letter", dead),
            ("one line in 100 left to Arrow", infinite),
            ("spaces, and texts in ASCII", spaced),
            ("all lines left to Arrow", odd),
        ):
            for path, parse in (
                ("lines to columns", json_lines.parse),
                ("Arrow, as before", json_lines.parse_otherwise),
            ):
                runs[path, case] = partial(_parsed, parse, other)
        no_op, *seconds = least_seconds([lambda: block.split(b"\n"), *runs.values()], repeats)
    us = 1e6 / n
    return [
        Figure(path, case, found * us, "us/event", no_op * us, None if "Arrow" in path + case else TARGET)
        for (path, case), found in zip(runs, seconds, strict=True)
    ]


@click.command(help="Measure how fast lines of JSON are read.")
@click.option("--repeats", type=click.IntRange(min=1), default=7, show_default=True)
@click.option("--quick", is_flag=True, help="a tenth of the events")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("out/bench/reading.json"), show_default=True
)
def main(repeats: int, quick: bool, out: Path) -> None:
    """Measure and show."""
    pa.set_cpu_count(1)
    compile_kernel()
    n = N_EVENTS // 10 if quick else N_EVENTS
    report("Lines of JSON", figures(n, repeats), {"events": n, "bytes": BYTES, "repeats": repeats}, out)


if __name__ == "__main__":
    main()
