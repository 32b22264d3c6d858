"""`cep init` writes a project to start from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from cep.commands.options import quiet_option

_STREAMS = """\
# The events that the rules read.
streams:
  transactions:
    event_time: ts
    tie_break: [tx_id]    # orders events of equal time
    lateness: 1 minute    # how late events may arrive, in a stream
    schema: {tx_id: string, card_id: string, ts: timestamp, amount: double, merchant: string}
"""

_RULE = """\
-- A thief tries a stolen card with small amounts, and then uses it.
RULE card_testing
  TITLE 'Three small payments of a card, then a large one'
  SEVERITY high
PARAM small = 5.0, large = 500.0
FROM transactions
PARTITION BY card_id
PATTERN probe->{3,} -> cashout
WITHIN 10 MINUTES
DEFINE
  probe   AS amount < small,
  cashout AS amount > large
MEASURES
  COUNT(probe.*)    AS probes,
  SUM(probe.amount) AS probed,
  cashout.amount    AS loss
AFTER MATCH SKIP PAST LAST EVENT
"""

_TESTS = """\
defaults: {card_id: c1}
cases:
  three small payments, then a large one:
    events:
      - {at: 0 seconds, amount: 1}
      - {at: 1 minute, amount: 2}
      - {at: 2 minutes, amount: 3.5}
      - {at: 4 minutes, amount: 949}
    expect:
      - {card_id: c1, probes: 3, probed: 6.5, loss: 949}
  two small payments are not enough:
    events:
      - {at: 0 seconds, amount: 1}
      - {at: 1 minute, amount: 2}
      - {at: 4 minutes, amount: 949}
    expect: none
  the large payment is too late:
    events:
      - {at: 0 seconds, amount: 1}
      - {at: 1 minute, amount: 2}
      - {at: 2 minutes, amount: 3.5}
      - {at: 11 minutes, amount: 949}
    expect: none
"""

_EVENTS = """\
{"tx_id": "t1", "card_id": "c1", "ts": "2024-05-01T10:00:00Z", "amount": 1.25, "merchant": "m1"}
{"tx_id": "t2", "card_id": "c1", "ts": "2024-05-01T10:00:40Z", "amount": 0.75, "merchant": "m1"}
{"tx_id": "t3", "card_id": "c2", "ts": "2024-05-01T10:01:00Z", "amount": 3.5, "merchant": "m2"}
{"tx_id": "t4", "card_id": "c1", "ts": "2024-05-01T10:01:10Z", "amount": 1.5, "merchant": "m3"}
{"tx_id": "t5", "card_id": "c2", "ts": "2024-05-01T10:03:00Z", "amount": 700, "merchant": "m2"}
{"tx_id": "t6", "card_id": "c1", "ts": "2024-05-01T10:04:00Z", "amount": 949, "merchant": "m4"}
"""

_PIPELINE = """\
# Runs the rules on Spark. `mode: stream` and a `checkpoint` make it continue where the last run stopped.
rules: [rules]
source: {stream: transactions, format: json, path: events}
sinks:
  - {format: json, path: out/alerts}
mode: batch
"""

_README = """\
# Alerts

`streams.yaml` declares the events, `rules` has the rules and their tests, and `events` has some events to
try them on.

```sh
cep check rules
cep test rules
cep match rules --input events/transactions.jsonl
cep why rules --key c2 --input events/transactions.jsonl
cep run pipeline.yaml
```

`cep check` reports mistakes in the rules, and `cep test` runs their tests. `cep match` reports card c1.
`cep why` says how far card c2 came. `cep run` needs Spark and Java, and writes to `out/alerts`.

To detect something else, declare your events in `streams.yaml`, change the rule and its tests, and run
`cep fmt rules`.
"""

_FILES = {
    "streams.yaml": _STREAMS,
    "rules/card_testing.cep": _RULE,
    "rules/card_testing.test.yaml": _TESTS,
    "events/transactions.jsonl": _EVENTS,
    "pipeline.yaml": _PIPELINE,
    "README.md": _README,
}


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@quiet_option
def init(folder: Path, quiet: bool) -> None:
    """Write a project to start from into DIR: a rule, its tests, events and a pipeline.

    No file is replaced.
    """
    paths = {folder / name: text for name, text in _FILES.items()}
    write_files(paths, "name another directory", quiet=quiet)
    if not quiet:
        click.echo(f"{folder / 'README.md'} has the commands")


def write_files(texts: Mapping[Path, str], instead: str, *, quiet: bool) -> None:
    """Write texts to new files, and print the names of the files.

    Raises InputError with the help `instead`: one of the files exists, so none was written (E0661).
    """
    from cep.errors import InputError
    from cep.write_errors import writing

    for path in texts:
        with writing(path):
            is_there = path.exists() or path.is_symlink()
        if is_there:
            raise InputError("E0661", f"`{path}` exists: nothing was written", instead)
    for path, text in texts.items():
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        if not quiet:
            click.echo(f"wrote {path}")
