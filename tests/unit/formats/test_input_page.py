"""The examples of docs/reference/input.md give the events and the reasons that stand below them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cep.engine.prepare.device_clocks import first_guard
from cep.errors import Source
from cep.expression import Type
from cep.formats.files import read_events
from cep.schema.stream import Stream
from cep.schema.time_formats import read_format
from cep.settings.schema_file import parse_streams

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "input.md").read_text()


@dataclass
class Example:
    """Files with their names, and the blocks that say what comes out."""

    streams: str
    files: dict[str, str] = field(default_factory=dict)
    events: list[Any] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def examples() -> list[Example]:
    """Return the examples: a file has its name before it, events and reasons come after the files."""
    found: list[Example] = []
    for before, kind, text in re.findall(r"([^\n]*)\n\n```(\w+)\n(.*?)```", PAGE, re.DOTALL):
        names = re.findall(r"`([\w./-]+\.\w+)`", before)
        if names[-1:] == ["streams.yaml"]:
            found.append(Example(text))
        elif names:
            found[-1].files[names[-1]] = text
        elif kind == "json":
            found[-1].events = [json.loads(line) for line in text.splitlines()]
        elif kind == "text":
            found[-1].reasons = text.splitlines()
        else:
            raise AssertionError(before)
    return found


def as_json(row: dict[str, Any], stream: Stream) -> dict[str, Any]:
    """Return an event with its times as text."""
    times = {column.name for column in stream.fields if column.type is Type.TIMESTAMP}
    return {name: iso(value) if name in times and value is not None else value for name, value in row.items()}


def iso(time_us: int) -> str:
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)
    return time.isoformat(timespec="microseconds" if time.microsecond else "seconds").replace("+00:00", "Z")


def test_the_page_has_examples_of_every_setting() -> None:
    text = "".join(example.streams for example in examples())
    settings = (
        "unit:",
        "format:",
        "zone:",
        "field:",
        "delimiter:",
        "quote:",
        "header:",
        "columns:",
        "device_clock:",
    )
    assert [setting for setting in settings if setting not in text] == []


@pytest.mark.parametrize("example", examples(), ids=lambda example: next(iter(example.files)))
def test_an_example_gives_the_events_and_reasons_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: Example
) -> None:
    monkeypatch.chdir(tmp_path)
    streams, problems = parse_streams(Source("streams.yaml", example.streams))
    assert problems == []
    (stream,) = streams.values()
    ((name, text),) = example.files.items()
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)
    path = "{day}/{series}.jsonl" if "/" in name else name
    assert path == name or f"'{path}'" in PAGE
    events, reasons = [], []
    for chunk in read_events(path, stream, ahead=first_guard(stream)):
        events += [as_json(row, stream) for row in chunk.events.to_pylist()]
        reasons += chunk.dead_letters.column("reason").to_pylist()
    assert events
    assert (events, reasons) == (example.events, example.reasons)


def test_the_page_lists_the_parts_of_a_format() -> None:
    listed = re.findall(r"`%(\w)`", PAGE.partition("### Times in other forms")[2].partition("### Local")[0])
    time = "".join(f"%{name}" for name in listed)
    for name in listed:
        assert name in "YymbBdHIpMSfzaA", time
    for name in "YymbBdHIpMSfzaA":
        assert name in listed
        others = {"Y": "%m%d", "y": "%m%d", "m": "%Y%d", "b": "%Y%d", "B": "%Y%d", "d": "%Y%m"}
        partner = {"I": "%p", "p": "%I"}.get(name, "")
        assert name in read_format(f"%{name}{partner}{others.get(name, '%Y%m%d')}").names
