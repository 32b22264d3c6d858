"""State in files of rules with a static table: records repeat what the table contained then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from cep.compiler.compile import compile_sources
from cep.counts import Counts
from cep.engine.prepare.predicates import prepare
from cep.errors import Source, StateError
from cep.rule_set import Corrections
from cep.schema.stream import Field, Stream, TableKind, TableSettings
from spark_runtime.operator.call import Moment, Results
from spark_runtime.operator.operator import KeyGroups
from spark_runtime.operator.owner import Owner
from spark_runtime.sinks.delivery import Delivery
from spark_runtime.state.files import StateFiles
from spark_runtime.state.pointer import Kept, Task
from spark_runtime.tables import content as contents
from spark_runtime.tables.content import Content, store
from spark_runtime.wire.output import MATCH
from spark_runtime.wire.parcels import Contents, Parcel, record_bytes
from tests.unit.engine.events import SECOND, STREAM, events

RISKS = Stream(
    "risks",
    (Field("letter", "string"), Field("risk", "bigint")),
    "",
    table=TableSettings(("letter",), TableKind.STATIC),
)
RULE = """
RULE r FROM events JOIN risks ON letter PARTITION BY k PATTERN a ->+ b WITHIN 60 SECONDS
DEFINE a AS risks.risk > 0, b AS letter = 'b'
MEASURES ARRAY_AGG(a.risks.risk) AS risk, LAST(b.risks.risk) AS last
"""
GROUP = 3


def risks(of_a: int) -> Content:
    """Return the table with this risk of the letter `a`."""
    rows = {"letter": ["a", "b"], "risk": [of_a, -of_a]}
    return Content.of(pa.table(rows, schema=pa.schema([("letter", pa.string()), ("risk", pa.int64())])))


class Group:
    """A key group that is called once a second, beside one with its state in Spark's store.

    Each second has one event: `b` at the end, or `a`.
    """

    def __init__(
        self, folder: Path, most_records: int = 1000, corrections: Corrections | None = None
    ) -> None:
        rules = compile_sources([Source("r", RULE)], {"events": STREAM, "risks": RISKS}).rule_set
        self.tables = folder / "tables"
        kept = Kept(
            str(folder / "state"),
            "run",
            0,
            1,
            inline_bytes=0,
            most_records=most_records,
            tables=str(self.tables),
        )
        delivery = Delivery(kinds=frozenset((MATCH,)))
        self.operator = KeyGroups(
            rules.with_corrections(corrections), 1, delivery, by_own_events=False, kept=kept
        )
        self.inline = replace(self.operator, kept=None)
        self.files = StateFiles(kept, self.operator.rules, 1)
        self.second = 0
        self.of_inline: bytes | None = None
        self.value = b""
        self.expected: list[object] = []
        self.found: list[object] = []
        self.start()

    def start(self) -> None:
        """Start an owner, which knows nothing."""
        contents._KEPT._tables.clear()
        self.owner = Owner(self.operator, 1 << 40)

    def call(self, content: Content, letter: str = "a", late: int = 0) -> dict[str, int]:
        """Do a call with a content of the table; return the counts of state in files."""
        self.second += 1
        store(str(self.tables), [content])
        told = {"risks": (content.digest, str(self.tables / f"{content.digest}.arrow"), "")}
        moment = Moment(GROUP, None, self.second * SECOND, None, told)
        rows = prepare(self.operator.rules.programs[0], events(("k", self.second - late, letter)))
        parcel = Parcel(Contents.EVENTS, 0, None, record_bytes(rows))
        results, self.of_inline = self.inline._call_inline(self.of_inline, moment, [parcel])
        self.expected.append(matches(results))
        if not self.value:
            self.value = self.files.stored(self.of_inline, Task(0, GROUP, 0, 0)).value
            self.found.append(matches(results))
            return {}
        task = Task(self.second, GROUP, 0, self.second)
        results, self.value = self.owner.call(self.value, task, moment, [parcel])
        self.found.append(matches(results))
        return Counts.of_json(results.counts[-1]).state

    def file(self, content: Content) -> Path:
        return self.tables / f"{content.digest}.arrow"


def matches(results: Results) -> object:
    return [row for table in results.found.matches for row in table.to_pylist()]


LOW, HIGH, NONE = risks(1), risks(2), risks(-1)
TURNS = [LOW, LOW, HIGH, HIGH, NONE, LOW, LOW, NONE, HIGH, LOW, HIGH, HIGH]


def check(group: Group, colds: Sequence[int]) -> None:
    for number, content in enumerate(TURNS):
        if number in colds:
            group.start()
        group.call(content, late=number % 3 if group.operator.rules.corrections else 0)
    group.call(HIGH, "b")
    assert group.found == group.expected
    assert "'last': -2" in str(group.found[-1])


@pytest.mark.parametrize("most_records", [1, 3, 1000])
@pytest.mark.parametrize("colds", [(), (5,), (2, 3, 8, 11), range(12)])
def test_a_group_that_was_warm_or_cold_has_seen_what_the_table_contained_then(
    tmp_path: Path, colds: Sequence[int], most_records: int
) -> None:
    group = Group(tmp_path, most_records)
    check(group, colds)
    assert "'risk': [1, 1, 2, 2, 1, 1, 2, 1, 2, 2]" in str(group.found[-1])


@pytest.mark.parametrize("colds", [(), (2, 3, 8, 11)])
def test_late_events_are_evaluated_with_the_same_contents_in_a_group_that_was_cold(
    tmp_path: Path, colds: Sequence[int]
) -> None:
    check(Group(tmp_path, 4, Corrections(10 * SECOND)), colds)


def test_a_record_names_contents_only_if_they_have_changed(tmp_path: Path) -> None:
    group = Group(tmp_path, 6)
    group.call(LOW)
    counts = [group.call(content) for content in (LOW, LOW, HIGH, HIGH, HIGH, HIGH)]
    first, second, third, fourth, fifth = (of["recorded"] for of in counts[:5])
    assert first == third > second == fourth == fifth
    assert first - second < 100
    assert "snapshots" in counts[5]
    assert group.call(HIGH)["recorded"] == first, "after a snapshot, contents are named again"


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_a_content_that_no_longer_exists_is_an_error_that_names_it(tmp_path: Path, damage: str) -> None:
    group = Group(tmp_path)
    for content in (LOW, LOW, HIGH, NONE):
        group.call(content)
    if damage == "missing":
        group.file(HIGH).unlink()
    else:
        group.file(HIGH).write_bytes(group.file(LOW).read_bytes())
    group.call(NONE)  # it is warm
    group.start()
    with pytest.raises(
        StateError, match=rf"E0713.*`risks`.*tables/{HIGH.digest}.arrow is missing or damaged"
    ):
        group.call(NONE)


@pytest.mark.parametrize("colds", [(), (5,), (2, 3, 8, 11)])
def test_after_a_snapshot_that_was_written_ahead_contents_are_named_again(
    tmp_path: Path, colds: Sequence[int]
) -> None:
    group, counts = Group(tmp_path, 2), []
    for number, content in enumerate(TURNS):
        if number in colds:
            group.start()
        counts.append(group.call(content))
        while not group.owner.is_settled:
            group.owner.settle()
    assert any("recorded" in of and "snapshots" in of for of in counts)
    group.start()
    group.call(HIGH, "b")
    assert group.found == group.expected
    assert "'risk': [1, 1, 2, 2, 1, 1, 2, 1, 2, 2]" in str(group.found[-1])


def test_contents_before_a_snapshot_are_not_needed(tmp_path: Path) -> None:
    group = Group(tmp_path, 3)
    group.call(NONE)
    counts = [group.call(content) for content in (LOW, HIGH, HIGH, NONE)]
    assert "snapshots" in counts[-1]
    for content in (LOW, HIGH):
        group.file(content).unlink()
    group.start()
    group.call(NONE)
    group.call(NONE, "b")
    assert group.found == group.expected
