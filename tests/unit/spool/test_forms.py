"""Lines of StatsD and syslog as events, and numbers that show gaps."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cep.spool.receivers.forms import as_statsd, as_syslog, as_text
from cep.spool.receivers.sequence import MAX_SENDERS, Sequences, json_number, number_of


@pytest.mark.parametrize(
    ("line", "events"),
    [
        ("hits:1|c", [{"name": "hits", "type": "c", "value": 1.0}]),
        ("hits:2|c|@0.1", [{"name": "hits", "type": "c", "rate": 0.1, "value": 2.0}]),
        (
            "t:3.5|ms|#env:prod,new",
            [{"name": "t", "type": "ms", "tags": {"env": "prod", "new": ""}, "value": 3.5}],
        ),
        (
            "t:1:2|h|#a:b|T1714500000|c:in-1",
            [
                {"name": "t", "type": "h", "tags": {"a": "b"}, "time": 1714500000, "value": value}
                for value in (1.0, 2.0)
            ],
        ),
        ("g:-4|g", [{"name": "g", "type": "g", "value": -4.0, "is_change": True}]),
        ("g:4e2|g", [{"name": "g", "type": "g", "value": 400.0}]),
        ("users:a:b|s", [{"name": "users", "type": "s", "member": "a:b"}]),
    ],
)
def test_a_line_of_statsd_is_an_event_for_each_value(line: str, events: list[dict[str, Any]]) -> None:
    assert [json.loads(event) for event in as_statsd(line.encode())] == events


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"x", b"x:1", b":1|c", b"x:|c", b"x:nan|c", b"x:1|c|@no", b"x:1|c|?", b"\xff:1|c"),
        *(b"a:1e400|c", b"a:1:-1e999|c", b"a:1|c|@1e400", b"a:1|c|T" + b"9" * 5_000),
    ],
)
def test_a_line_that_is_no_statsd_stays_as_it_is(line: bytes) -> None:
    assert as_statsd(line) == [line]


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (
            "<34>1 2003-10-11T22:14:15.003Z host su - ID47 - 'su root' failed",
            {
                "facility": 4,
                "severity": 2,
                "time": "2003-10-11T22:14:15.003Z",
                "host": "host",
                "app": "su",
                "kind": "ID47",
                "text": "'su root' failed",
            },
        ),
        (
            '<165>1 - h a 7 - [x@1 k="a\\]b"][y@2] \ufefftext',
            {
                "facility": 20,
                "severity": 5,
                "host": "h",
                "app": "a",
                "process": "7",
                "data": '[x@1 k="a\\]b"][y@2]',
                "text": "text",
            },
        ),
        (
            "<13>Oct  1 22:14:15 host app[12]: text: more",
            {
                "facility": 1,
                "severity": 5,
                "local_time": "Oct  1 22:14:15",
                "host": "host",
                "app": "app",
                "process": "12",
                "text": "text: more",
            },
        ),
        ("<0>text only", {"facility": 0, "severity": 0, "text": "text only"}),
    ],
)
def test_a_line_of_syslog_is_an_event(line: str, event: dict[str, Any]) -> None:
    assert [json.loads(found) for found in as_syslog(line.encode())] == [event]


@pytest.mark.parametrize("line", [b"", b"text", b"<192>text", b"<x>text"])
def test_a_line_that_is_no_syslog_stays_as_it_is(line: bytes) -> None:
    assert as_syslog(line) == [line]


def test_a_line_of_syslog_that_would_take_a_regular_expression_long_does_not() -> None:
    for line in (
        b"<34>1 a b c d e [" + b"x\\" * 50_000,
        b"<34>1 a b c d e " + b"[x]" * 50_000 + b"!",
        b"<1>" + b"a" * 100_000,
    ):
        as_syslog(line)


def test_a_text_that_is_no_unicode_is_an_event() -> None:
    assert json.loads(as_text(b"a\xff")[0]) == {"text": "a\ufffd"}


def test_gaps_are_counted_by_sender() -> None:
    found = Sequences()
    assert [found.missing("a", number) for number in (5, 6, 9, 9, 8, 10)] == [0, 0, 2, 0, 0, 0]
    assert found.missing("b", 100) == 0
    assert found.missing("a", 13) == 2
    assert [found.missing("b", number) for number in (5_000, 0, 1, 3)] == [4_899, 0, 0, 1]  # it began again
    assert [found.missing("b", number) for number in (10**17, 10**17 + 2)] == [0, 1]


def test_of_too_many_senders_the_first_is_forgotten() -> None:
    found = Sequences()
    for number in range(MAX_SENDERS + 10):
        found.missing(str(number), 1)
    assert len(found.last) == MAX_SENDERS
    assert "9" not in found.last


def test_a_number_is_found_in_json_or_is_a_part() -> None:
    name = json_number("n.o")
    assert [
        match and int(match[1]) for match in map(name.search, (b'{"n.o": 12}', b'{"n.o":"7"}', b'{"nxo": 1}'))
    ] == [12, 7, None]
    assert name.search(b'{"n.o": %d}' % 10**18) is None
    assert [number_of(part) for part in (b"12", b"\0\0\0\0\0\0\1\0", b"\0\0\1\0", b"x", b"", b"1" * 19)] == [
        12,
        256,
        256,
        None,
        None,
        None,
    ]
