"""Logs that were deleted and made again, without a server: what a planner asks, keeps, refuses and counts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cep.counts import Counts
from cep.errors import InputError
from spark_runtime.connectors.message_logs.log import (
    Incarnation,
    LogWords,
    MessageRange,
    Place,
    Portion,
)
from spark_runtime.connectors.message_logs.offsets import between, identities, of_json, to_json
from spark_runtime.connectors.message_logs.planner import NEW_PARTITIONS_SECONDS, MessagePlanner
from spark_runtime.connectors.message_logs.reading import MessageReading
from spark_runtime.event_time.partitions import place_text
from tests.servers.messages import STREAM, code_of


@dataclass
class Log:
    """A log of which only the ends of partitions and its identity are known; also its own client."""

    ends_of: dict[int, int]
    text: str = "one"
    n_asked: int = 0
    begins_of: dict[int, int] = field(default_factory=dict)

    connected_to = "here"
    words = LogWords("topic", "here", unknown="E0851", lost="E0854")
    reads_ahead = False

    def open(self) -> Log:
        return self

    def origin(self, place: Place) -> str:
        return place_text(*place)

    def require_right(self) -> None: ...

    def close(self) -> None: ...

    def places(self) -> list[Place]:
        return [("t", number) for number in self.ends_of]

    def begins(self, places: Collection[Place]) -> dict[Place, int]:
        return {place: self.begins_of.get(int(place[1]), 0) for place in places}

    def ends(self, places: Collection[Place]) -> dict[Place, int]:
        if not {int(place[1]) for place in places} <= self.ends_of.keys():
            raise InputError("E0851", "there is no such partition")
        return {place: self.ends_of[int(place[1])] for place in places}

    def at_time(self, places: Collection[Place], time_us: int) -> dict[Place, int]:
        return self.ends(places)

    def incarnations(self, known: Mapping[str, str]) -> dict[str, Incarnation]:
        self.n_asked += 1
        return {log: Incarnation.of(self.text, text) for log, text in known.items()}

    def read(self, part: MessageRange, columns: Sequence[str]) -> Iterator[Portion]:
        raise NotImplementedError

    def peek(self, ranges: Any, columns: Sequence[str]) -> dict[Place, Portion | None]:
        return dict.fromkeys(ranges)


def planner_of(log: Log, clock: Any = lambda: 0.0, **more: Any) -> MessagePlanner:
    return MessagePlanner(MessageReading(STREAM, log, **more), clock)


def lost(planner: MessagePlanner) -> dict[str, int]:
    counts = Counts()
    planner.close(counts)
    return counts.lost


AT = {"t": {"": ["one", 0], "0": [0, 5]}}


def test_an_offset_says_which_log_it_speaks_of() -> None:
    assert (of_json(AT), identities(AT)) == ({("t", 0): (0, 5)}, {"t": ("one", 0)})
    assert to_json(of_json(AT), identities(AT)) == AT
    assert planner_of(Log({0: 7})).latest({}) == {"t": {"": ["one", 0], "0": [0, 7]}}
    assert planner_of(Log({0: 0})).latest({}) == {}
    assert planner_of(Log({0: 7}, text="")).latest({}) == {"t": {"0": [0, 7]}}
    assert planner_of(Log({0: 7}), begin="latest").start() == {"t": {"": ["one", 0], "0": [7, 7]}}


def test_a_start_beyond_the_end_is_told_as_such() -> None:
    said = "E0854 `from` is beyond the end: `t[0]` ends at offset 7, and `from` names 999"
    assert code_of(lambda: planner_of(Log({0: 7}), begin={"t[0]": 999}).start()) == said
    planner = planner_of(Log({0: 7}), begin={"t[0]": 7})
    assert planner.start() == {"t": {"": ["one", 0], "0": [7, 7]}}
    assert planner.latest(planner.start()) == planner.start()


def test_the_offset_of_an_earlier_version_takes_the_identity_over_at_once() -> None:
    planner = planner_of(Log({0: 5}))
    assert planner.latest({"t": {"0": [0, 5]}}) == AT
    assert planner.ranges({"t": {"0": [0, 5]}}, AT) == []
    assert planner.latest(AT) == AT


def test_another_log_is_refused_wherever_it_ends() -> None:
    said = "E0854 topic `t` is not the topic that it was: it is two, and was one"
    for end in (0, 4, 5, 6, 900):
        assert code_of(lambda: planner_of(Log({0: end}, "two")).latest(AT)) == said  # noqa: B023
    assert code_of(lambda: planner_of(Log({0: 9}, "two")).commit(AT)) == said  # before a plan is repeated


def test_who_is_silent_is_not_another_one() -> None:
    assert planner_of(Log({0: 6}, "")).latest(AT) == {"t": {"": ["one", 0], "0": [0, 6]}}


def test_a_log_is_asked_for_each_micro_batch_and_every_few_seconds() -> None:
    log, now = Log({0: 5}), [0.0]
    planner = planner_of(log, lambda: now[0])
    for _ in range(5):
        assert planner.latest(AT) == AT
    assert log.n_asked == 1
    log.ends_of[0] = 6
    at = planner.latest(AT)
    assert log.n_asked == 2
    log.text = "two"
    assert planner.latest(at) == at
    now[0] = NEW_PARTITIONS_SECONDS
    assert code_of(lambda: planner.latest(at)).startswith("E0854 topic `t` is not ")


def test_with_go_on_the_new_log_is_read_from_its_beginning_and_what_is_known_to_be_lost_is_counted() -> None:
    log = Log({0: 9, 1: 3})
    planner = planner_of(log, goes_on_without=True, max_events=4)
    at = planner.latest({"t": {"": ["one", 0], "0": [0, 5], "1": [2, 3]}})
    assert at == {"t": {"": ["one", 0], "0": [0, 9], "1": [2, 3]}}
    log.ends_of, log.text, log.begins_of = {0: 20}, "two", {0: 1}
    end = planner.latest({"t": {"": ["one", 0], "0": [0, 5], "1": [2, 3]}})  # 5 to 9 were not read
    assert end == {"t": {"": ["two", 1], "0": [1, 5]}}
    assert [list(part) for _, part in planner.ranges(at, end)] == [["t", 0, 1, 5]]
    planner.commit(end)
    assert planner.latest(end) == {"t": {"": ["two", 1], "0": [1, 9]}}
    assert lost(planner) == {"t[0]": 4, "t[1]": 1}


def test_a_partition_that_is_gone_is_another_error_unless_the_log_is_another_one() -> None:
    said = {"one": "E0851 there is no such", "two": "E0854 topic `t` is not the topic that it was: "}
    for text, begin in said.items():
        log = Log({0: 5, 1: 5})
        planner = planner_of(log)
        at = planner.latest({})
        log.ends_of, log.text = {0: 5}, text
        assert code_of(lambda: planner.latest(at)).startswith(begin)  # noqa: B023


def test_with_go_on_a_log_that_was_made_again_between_two_runs_counts_as_one_message() -> None:
    planner = planner_of(Log({0: 9}, "two"), goes_on_without=True)
    planner.stop_at_now()
    planner.commit(AT)
    end = planner.latest(AT)
    assert end == {"t": {"": ["two", 1], "0": [0, 9]}}
    assert between(AT, end) == {("t", 0): (0, 9)}
    assert planner.latest(end) == end
    assert lost(planner) == {"t[0]": 1}
    empty = planner_of(Log({0: 0}, "two"), goes_on_without=True).latest(AT)
    assert empty == {"t": {"": ["two", 1]}}
    assert planner_of(Log({0: 2}, "two"), goes_on_without=True).latest(empty) == {
        "t": {"": ["two", 1], "0": [0, 2]}
    }
