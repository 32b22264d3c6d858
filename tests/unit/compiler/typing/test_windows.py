"""Windowed values: what each function takes and gives, in which frames, and what is refused."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from cep import find_matches
from cep.compiler import ir
from cep.compiler.compile import check_sources, compile_sources
from cep.errors import Diagnostic, Source
from cep.expression import Aggregate, Frame, Type, Window, Windowed
from cep.program.window_functions import WINDOW_FUNCTIONS, Function
from cep.schema.stream import Field, Stream
from tests.oracle import find_matches as find_matches_slowly
from tests.property.strategies.expressions import APPROXIMATE, WINDOWED

COLUMNS = {
    "k": "string",
    "ts": "timestamp",
    "n": "bigint",
    "x": "double",
    "s": "string",
    "b": "boolean",
    "o": "array<string>",
}
STREAMS = {
    name: Stream(name, tuple(Field(*column) for column in COLUMNS.items()), "ts") for name in ("s", "other")
}
OF_TYPE = {
    Type.BIGINT: "n",
    Type.DOUBLE: "x",
    Type.STRING: "s",
    Type.BOOLEAN: "b",
    Type.TIMESTAMP: "ts",
    Type.INTERVAL: "(ts - TIMESTAMP '1970-01-01')",
    Type.OPAQUE: "o",
}
N, D, B = Type.BIGINT, Type.DOUBLE, Type.BOOLEAN
NUMBERS = {N: D, D: D}
ITSELF: dict[Type, Type] = {kind: kind for kind in OF_TYPE if kind is not Type.OPAQUE}
ORDERED: dict[Type, Type] = {kind: kind for kind in (N, D, Type.TIMESTAMP, Type.INTERVAL)}

# What docs/language/semantics/windows.md says, once more: the type of each function by that of its argument.
GIVES: dict[str, dict[Type, Type]] = {
    "COUNT({})": dict.fromkeys(OF_TYPE, N),
    "COUNT(DISTINCT {})": dict.fromkeys(ITSELF, N),
    "SUM({})": {N: N, D: D, Type.INTERVAL: Type.INTERVAL},
    "AVG({})": NUMBERS,
    "MEDIAN({})": NUMBERS,
    "PERCENTILE({}, 0.25)": NUMBERS,
    "STDDEV({})": NUMBERS,
    "VARIANCE({})": NUMBERS,
    "MIN({})": ORDERED,
    "MAX({})": ORDERED,
    "FIRST_VALUE({})": ITSELF,
    "LAST_VALUE({})": ITSELF,
    "LAG({})": ITSELF,
    "LAG({}, 2)": ITSELF,
    "SEEN({})": dict.fromkeys(ITSELF, B),
}
FRAMES = {
    "LAST 3 EVENTS": Window(Frame.EVENTS, 3),
    "PREVIOUS 1 EVENT": Window(Frame.EVENTS, 1, previous=True),
    "LAST 2 SECONDS": Window(Frame.TIME, 2_000_000),
    "PREVIOUS 1 MINUTE 30 SECONDS": Window(Frame.TIME, 90_000_000, previous=True),
    "LAST 0 SECONDS": Window(Frame.TIME, 0),
    "LAST 4 SECONDS BY 2 SECONDS": Window(Frame.TIME, 4_000_000, step_us=2_000_000),
    "PREVIOUS 1 MINUTE BY 1 MINUTE": Window(Frame.TIME, 60_000_000, previous=True, step_us=60_000_000),
    "TUMBLING 1 HOUR": Window(Frame.TUMBLING, 3_600_000_000),
    "TUMBLING 1 HOUR OFFSET 61 MINUTES": Window(Frame.TUMBLING, 3_600_000_000, offset_us=60_000_000),
    "TUMBLING 1 DAY ZONE 'Europe/Berlin'": Window(Frame.TUMBLING, 86_400_000_000, zone="Europe/Berlin"),
    "SESSION 1 SECOND": Window(Frame.SESSION, 1_000_000),
    "ALL": Window(Frame.ALL),
}
ROWS: list[dict[str, Any]] = [
    {"k": "k", "ts": second * 1_000_000, "n": n, "x": x, "s": s, "b": b, "o": None if n is None else ["v"]}
    for second, n, x, s, b in [
        (1, 4, 0.5, "p", True),
        (2, None, None, None, None),
        (3, 4, -2.25, "q", False),
        (3, 9, 0.5, "p", True),
        (7, -1, 7.0, "r", None),
        (8, 4, None, "q", False),
    ]
]


def checked(measures: str = "", condition: str = "TRUE", let: str = "", streams: str = "s") -> Any:
    text = f"RULE r FROM {streams} PARTITION BY k PATTERN a -> b WITHIN 1 HOUR"
    text += f" LET {let}" if let else ""
    on = " ON s" if "," in streams else ""
    text += f" DEFINE a{on} AS TRUE, b{on} AS {condition}"
    text += f" MEASURES {measures}" if measures else ""
    return check_sources([Source("r.cep", text)], STREAMS)


def value(text: str, let: str = "") -> Windowed:
    """Return a windowed value as it is typed."""
    rules, problems = checked(f"{text} AS m", let=let)
    assert [problem for problem in problems if problem.is_error] == []
    found = rules[0].measures[0].expression
    assert isinstance(found, Aggregate)  # of the last event of the match
    assert found.kind == "LAST"
    assert isinstance(found.argument, Windowed)
    return found.argument


def problem(**parts: str) -> tuple[str, str]:
    """Return code and title of the only error."""
    _, problems = checked(**parts)
    (found,) = [one for one in problems if one.is_error]
    assert isinstance(found, Diagnostic)
    assert found.span is not None
    assert found.help
    return found.code, found.title


def test_each_function_is_in_the_table_of_this_test() -> None:
    assert {call.partition("(")[0] for call in GIVES} == set(WINDOW_FUNCTIONS)


def test_random_rules_have_each_function() -> None:
    drawn = {name for functions in (*WINDOWED.values(), APPROXIMATE) for name, _ in functions}
    assert drawn == {function.name for function in Function}


def test_kernels_call_each_function_by_another_number() -> None:
    assert sorted(function.value.number for function in Function) == list(range(len(Function)))


@pytest.mark.parametrize("call", GIVES)
def test_a_function_takes_and_gives_what_the_semantics_say(call: str) -> None:
    for kind, column in OF_TYPE.items():
        text = f"{call.format(column)} OVER LAST 3 EVENTS"
        if kind in GIVES[call]:
            assert value(text).type is GIVES[call][kind], text
        else:
            assert problem(measures=f"{text} AS m")[0] == "E0206", text


def test_a_count_of_events_needs_no_argument() -> None:
    found = value("COUNT(*) FILTER (WHERE b) OVER LAST 3 EVENTS")
    assert (found.function, found.argument, found.type) == ("COUNT", None, N)
    assert found.condition is not None


@pytest.mark.parametrize("over", FRAMES)
def test_a_frame_is_read_as_it_is_written(over: str) -> None:
    assert value(f"SUM(x) OVER {over}").window == FRAMES[over]


def test_a_step_is_part_of_what_a_stored_window_means() -> None:
    """And a window without one means what it meant before there were steps: its state can still be read."""
    overs = ("LAST 2 SECONDS", "LAST 2 SECONDS BY 1 SECOND", "LAST 2 SECONDS BY 2 SECONDS")
    meanings = []
    for over in overs:
        text = f"RULE r FROM s PARTITION BY k PATTERN a MEASURES SUM(x) OVER {over} AS m"
        (program,) = compile_sources([Source("r.cep", text)], STREAMS).programs
        meanings += [meaning.hex() for meaning in program.window_meanings.values()]
    assert len(set(meanings)) == 3
    assert meanings[0] == "10d17e1e754421434459bd4373844437"


def _plain(found: Any) -> Any:
    """What the oracle has for a value: points in time are microseconds."""
    return int(found.timestamp() * 1_000_000) if isinstance(found, datetime) else found


@pytest.mark.parametrize("call", GIVES)
def test_engine_and_oracle_compute_the_same_of_every_type_in_every_frame(call: str) -> None:
    kinds = [kind for kind in GIVES[call] if kind is not Type.OPAQUE]
    is_percentile = call.partition("(")[0] in ("MEDIAN", "PERCENTILE")
    overs = [over for over in FRAMES if not is_percentile or (over != "ALL" and " BY " not in over)]
    values = [
        f"{call.format(OF_TYPE[kind])} FILTER (WHERE n <> 9) OVER {over}" for kind in kinds for over in overs
    ]
    values += [f"{call.format(OF_TYPE[kind])} OVER {over}" for kind in kinds for over in overs]
    for start in range(0, len(values), 30):
        named = ", ".join(f"{text} AS m{number}" for number, text in enumerate(values[start : start + 30]))
        text = f"RULE r FROM s PARTITION BY k PATTERN a DEFINE a AS TRUE MEASURES {named}"
        (rule,), problems = check_sources([Source("r.cep", text)], STREAMS)
        assert problems == ()
        assert isinstance(rule, ir.Rule)
        slow = find_matches_slowly(rule, [STREAMS["s"]], ROWS)
        fast = find_matches(text, STREAMS, ROWS)
        assert len(slow) == len(fast) == len(ROWS)
        for expected, found in zip(slow, fast, strict=True):
            for name, one in expected.measures.items():
                shown = values[start + int(name[1:])]
                assert _plain(found[name]) == (pytest.approx(one) if isinstance(one, float) else one), shown


PERCENTILE_NEEDS = "PERCENTILE needs a number from 0 to 1 as its second argument"
LAG_NEEDS = "LAG needs a whole number of events from 1 as its second argument"
BOUNDS = "; it must be between 1 and 1,000,000"


@pytest.mark.parametrize(
    ("text", "code", "title"),
    [
        ("RANK(x) OVER ALL", "E0204", "RANK has no OVER"),
        ("SUM(DISTINCT x) OVER ALL", "E0217", "SUM has no DISTINCT"),
        ("MEDIAN(x) OVER ALL", "E0217", "MEDIAN OVER ALL"),
        ("PERCENTILE(x, 0.5) OVER ALL", "E0217", "PERCENTILE OVER ALL"),
        ("SUM(x) OVER SESSION 0 SECONDS", "E0217", "a window of no time"),
        ("SUM(x) OVER TUMBLING 0 SECONDS", "E0217", "a window of no time"),
        ("SUM(x) OVER TUMBLING 1 DAY ZONE 'Berlin'", "E0217", "there is no time zone 'Berlin'"),
        ("SUM(x) OVER TUMBLING 1 DAY ZONE '../x'", "E0217", "there is no time zone '../x'"),
        ("SUM(x) OVER TUMBLING 1 DAY BY 1 HOUR", "E0327", "OVER TUMBLING has no BY"),
        ("SUM(x) OVER SESSION 1 DAY BY 1 HOUR", "E0327", "OVER SESSION has no BY"),
        ("SUM(x) OVER ALL BY 1 HOUR", "E0327", "OVER ALL has no BY"),
        ("SUM(x) OVER LAST 9 EVENTS BY 1 HOUR", "E0327", "OVER LAST 9 EVENTS has no BY"),
        ("SUM(x) OVER LAST 1 HOUR BY 0 SECONDS", "E0327", "steps of no time"),
        ("SUM(x) OVER LAST 1 HOUR BY 1 DAY", "E0327", "steps of 1 DAY, longer than the window of 1 HOUR"),
        ("SUM(x) OVER LAST 1 HOUR BY 7 MINUTES", "E0327", "1 HOUR does not divide into steps of 7 MINUTES"),
        ("MEDIAN(x) OVER LAST 1 HOUR BY 1 MINUTE", "E0327", "MEDIAN of a window with BY"),
        ("PERCENTILE(x, 0.5) OVER LAST 1 HOUR BY 1 HOUR", "E0327", "PERCENTILE of a window with BY"),
        ("SUM(x) OVER LAST 36501 DAYS BY 1 DAY", "E0907", None),
        ("SUM(x, 1) OVER ALL", "E0205", "SUM takes 1 argument, not 2"),
        ("COUNT() OVER ALL", "E0205", "COUNT takes 1 argument, not 0"),
        ("PERCENTILE(x) OVER LAST 9 EVENTS", "E0205", "PERCENTILE takes 2 arguments, not 1"),
        ("LAG(x, 1, 2) OVER ALL", "E0205", "LAG takes 1 or 2 arguments, not 3"),
        ("PERCENTILE(x, 1.01) OVER LAST 9 EVENTS", "E0206", PERCENTILE_NEEDS),
        ("PERCENTILE(x, x) OVER LAST 9 EVENTS", "E0206", PERCENTILE_NEEDS),
        ("LAG(x, 0) OVER ALL", "E0206", LAG_NEEDS),
        ("LAG(x, 1.5) OVER ALL", "E0206", LAG_NEEDS),
        ("SUM(x) OVER LAST 0 EVENTS", "E0906", "a window of 0 events" + BOUNDS),
        ("SUM(x) OVER PREVIOUS 1000001 EVENTS", "E0906", "a window of 1,000,001 events" + BOUNDS),
        ("SUM(a.x) OVER ALL", "E0218", "`a` inside a window"),
        ("SUM(SUM(a.x)) OVER ALL", "E0218", "SUM inside a window"),
        ("SUM(LAG(x) OVER ALL) OVER ALL", "E0218", "a window inside a window"),
        ("COUNT(*) FILTER (WHERE SEEN(x) OVER ALL) OVER ALL", "E0218", "a window inside a window"),
        ("COUNT(*) FILTER (WHERE x > a.x) OVER ALL", "E0218", "`a` inside a window"),
        ("COUNT(*) FILTER (WHERE x) OVER ALL", "E0208", None),
        ("SUM(no_such) OVER ALL", "E0203", None),
    ],
)  # fmt: skip
def test_what_is_no_windowed_value_is_refused(text: str, code: str, title: str | None) -> None:
    for parts in ({"measures": f"{text} AS m"}, {"condition": f"({text}) IS NOT NULL"}):
        found = problem(**parts)
        assert found == (code, found[1] if title is None else title)


@pytest.mark.parametrize("name", ["MEDIAN", "VARIANCE", "LAG", "FIRST_VALUE", "LAST_VALUE", "SEEN"])
def test_functions_of_windows_alone_ask_for_their_window(name: str) -> None:
    _, problems = checked(condition=f"{name}(x) IS NOT NULL")
    (found,) = [one for one in problems if one.is_error]
    assert found.code == "E0204"
    assert f"{name}(x" in (found.help or "")
    assert "OVER" in (found.help or "")


def test_a_let_has_the_type_of_its_value_and_reads_the_ones_before_it() -> None:
    let = "good = b AND x > 0, usual = AVG(x) FILTER (WHERE good) OVER ALL, twice = 2 * usual"
    rules, problems = checked("b.twice AS m, a.good AS g", "x > a.twice AND good", let)
    assert not [one for one in problems if one.is_error]
    assert [measure.expression.type for measure in rules[0].measures] == [D, B]


@pytest.mark.parametrize(
    ("let", "code", "title"),
    [
        ("x = 1", "E0219", "the name `x` is taken"),
        ("a = 1", "E0219", "the name `a` is taken"),
        ("u = 1, u = 2", "E0219", "there are two values `u`"),
        ("u ON nowhere = 1", "E0231", "`nowhere` is not in FROM"),
        ("u = later, later = 1", "E0203", None),
        ("u = LAG(x) OVER ALL, v = SUM(u) OVER ALL", "E0218", "a window inside a window"),
        ("u = a.x", None, None),
    ],
)
def test_a_let_that_names_something_else_is_refused(let: str, code: str | None, title: str | None) -> None:
    _, problems = checked(let=let)
    errors = [one for one in problems if one.is_error]
    assert errors
    if code is not None:
        assert errors[0].code == code
        assert title is None or errors[0].title == title


def test_with_several_streams_a_let_says_of_which_one() -> None:
    assert problem(let="u = 1", streams="s, other")[0] == "E0232"
    assert problem(measures="COUNT(*) OVER ALL AS m", streams="s, other")[0] == "E0209"
    rules, problems = checked("b.u AS m", let="u ON s = SUM(x) OVER ALL", streams="s, other")
    assert not [one for one in problems if one.is_error]
    (found,) = [measure.expression for measure in rules[0].measures]
    assert isinstance(found, Aggregate)
    assert isinstance(found.argument, Windowed)
    assert found.argument.stream == "s"  # events of the other stream do not count
