"""What of rules and streams may change while state is kept, and what may not."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from cep.compiler.compile import check_sources, compile_rules, compile_sources
from cep.errors import Source
from cep.program.fingerprint import identity_of
from cep.program.identity import (
    ProgramIdentity,
    RuleIdentity,
    differences,
    packed_json,
    packed_json_in,
)
from cep.rulebook import load_rulebook
from cep.schema.stream import Field, Stream, TableKind, TableSettings

STREAM = Stream(
    "s",
    (Field("k", "string"), Field("ts", "timestamp"), Field("x", "double"), Field("other", "bigint")),
    "ts",
    ("x",),
    lateness_us=10,
)
RULE = """RULE r TITLE 'title' SEVERITY low TAGS a FROM s PARTITION BY k PATTERN a -> b WITHIN 5 MINUTES
DEFINE a AS x < 1, b AS x > a.x MEASURES b.x AS x"""


def fingerprint(rule: str = RULE, stream: Stream = STREAM) -> bytes:
    (program,) = compile_sources([Source("rules", rule)], {"s": stream}).programs
    return program.fingerprint


@pytest.mark.parametrize(
    ("before", "after"),
    [("'title'", "'another title'"), ("low", "high"), ("TAGS a ", "TAGS b "), ("FROM", "-- comment\nFROM")],
)
def test_what_is_only_said_about_a_rule_may_change(before: str, after: str) -> None:
    assert fingerprint(RULE.replace(before, after)) == fingerprint()


@pytest.mark.parametrize(
    ("before", "after"),
    [("5 MINUTES", "6 MINUTES"), ("x < 1", "x < 2"), ("a -> b", "a b"), ("AS x\n", "AS y\n"), ("b.x", "a.x")],
)
def test_what_a_rule_means_may_not_change(before: str, after: str) -> None:
    rule = f"{RULE}\n"
    assert fingerprint(rule.replace(before, after)) != fingerprint()


def test_which_events_are_taken_in_may_change() -> None:
    other = dataclasses.replace(STREAM, lateness_us=99, min_valid_us=5, max_valid_us=6, max_ahead_us=7)
    assert fingerprint(stream=other) == fingerprint()


def test_columns_that_no_rule_reads_may_change() -> None:
    fields = STREAM.fields
    assert fingerprint(stream=dataclasses.replace(STREAM, fields=fields[:3])) == fingerprint()
    more = (*fields[:3], Field("new", "string"))
    assert fingerprint(stream=dataclasses.replace(STREAM, fields=more)) == fingerprint()
    retyped = (*fields[:2], Field("x", "float"))
    assert fingerprint(stream=dataclasses.replace(STREAM, fields=retyped)) != fingerprint()
    assert fingerprint(stream=dataclasses.replace(STREAM, tie_break=(), deduplicate=False)) != fingerprint()


def test_a_rule_that_reports_events_reads_every_column() -> None:
    rule = f"{RULE} ALL ROWS PER MATCH"
    fewer = dataclasses.replace(STREAM, fields=STREAM.fields[:3])
    assert fingerprint(rule, fewer) != fingerprint(rule)


# ---------------------------------------------------------------- rule by rule


def rule_identity(rule: str, *others: str) -> RuleIdentity:
    """Return the identity of `rule`, compiled behind `others`."""
    sources = [Source("rules", text) for text in (*others, rule)]
    (program,) = compile_sources(sources, {"s": STREAM}).programs
    return program.identity.rules[-1]


def renamed(rule: str, name: str) -> str:
    return rule.replace("RULE r ", f"RULE {name} ")


def test_a_rule_is_the_same_rule_whatever_rules_stand_beside_it() -> None:
    folders = [path for path in (Path(__file__).parents[3] / "rules").iterdir() if path.is_dir()]
    books = [load_rulebook([folder]) for folder in folders if folder.name != "__pycache__"]
    n_rules = 0
    for book in books:
        rules, _ = check_sources(book.sources, book.streams)
        together = {
            rule.name: rule
            for program in compile_rules(rules[::-1], book.streams)
            for rule in program.identity.rules
        }
        for rule in rules:
            (alone,) = compile_rules([rule], book.streams)
            assert alone.identity.rules == (together[rule.name],)
            n_rules += 1
    assert n_rules >= 16


def test_the_name_of_a_rule_is_no_part_of_its_fingerprint_but_of_that_of_the_program() -> None:
    assert rule_identity(renamed(RULE, "q")).fingerprint == rule_identity(RULE).fingerprint
    assert fingerprint(renamed(RULE, "q")) != fingerprint()


def test_a_change_of_one_rule_leaves_the_others_as_they_are() -> None:
    other, changed = renamed(RULE, "q"), renamed(RULE, "q").replace("x < 1", "x < 2")
    assert rule_identity(RULE, other) == rule_identity(RULE, changed)
    assert rule_identity(other) != rule_identity(changed)


def test_the_order_of_rules_is_no_part_of_a_fingerprint() -> None:
    other = renamed(RULE, "q").replace("x < 1", "x < 2")
    assert fingerprint(f"{RULE}\n{other}") == fingerprint(f"{other}\n{RULE}")


def test_registers_are_known_by_what_they_hold_not_by_their_names() -> None:
    one, other = (rule_identity(RULE.replace("b.x AS", f"SUM({of}) AS")) for of in ("a.x + 1", "a.x + 2"))
    registers = [
        next(item for item in rule.registers if item.name.startswith("SUM")) for rule in (one, other)
    ]
    assert registers[0].name == registers[1].name == "SUM(expression of a)"
    assert registers[0].meaning != registers[1].meaning


def test_identities_outlive_the_program_as_json() -> None:
    (program,) = compile_sources([Source("rules", RULE)], {"s": STREAM}).programs
    identity = identity_of(program)
    assert ProgramIdentity.of_json(packed_json_in(packed_json(identity.to_json()))) == identity
    assert ProgramIdentity.of_json(identity.to_json()).fingerprint == program.fingerprint


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"x" + data, lambda data: b""])
def test_what_is_not_packed_json_is_refused(damage: object) -> None:
    assert callable(damage)
    with pytest.raises(ValueError, match=r"cut off|incorrect header"):
        packed_json_in(damage(packed_json({"a": 1})))


LIMITS = Stream(
    "limits",
    (
        *(Field("k", "string"), Field("at", "timestamp"), Field("n", "bigint"), Field("op", "string")),
        *(Field("most", "double"), Field("other", "bigint"), Field("later", "timestamp")),
    ),
    "at",
    ("n",),
    table=TableSettings(("k",), TableKind.CHANGELOG, "op"),
)
WITH_TABLE = """
RULE over FROM s JOIN limits ON k PARTITION BY k PATTERN a -> b WITHIN 5 MINUTES
LET w = SUM(x * limits.most) OVER LAST 1 HOUR
DEFINE a AS x > limits.most, b AS w > 3 MEASURES LAST(a.limits.most) AS most, LAST(b.w) AS w
RULE busy FROM s JOIN limits ON k PARTITION BY k WINDOW TUMBLING 1 HOUR FOR EACH limits
MEASURES COUNT(*) AS n
RULE plain FROM s PARTITION BY k PATTERN a DEFINE a AS x < 1
RULE above FROM MATCHES OF over PARTITION BY k PATTERN a DEFINE a AS most > 1
"""


def with_table(table: Stream = LIMITS, text: str = WITH_TABLE) -> list[ProgramIdentity]:
    compiled = compile_sources([Source("rules", text)], {"s": STREAM, "limits": table})
    read = [program.identity.to_json() for program in compiled.programs]
    return [ProgramIdentity.of_json(json.loads(json.dumps(item))) for item in read]


def settings(**changes: object) -> Stream:
    assert LIMITS.table is not None
    return dataclasses.replace(LIMITS, table=dataclasses.replace(LIMITS.table, **changes))  # type: ignore[arg-type]


def with_type(name: str, ddl: str) -> tuple[Field, ...]:
    return tuple(dataclasses.replace(item, ddl=ddl) if item.name == name else item for item in LIMITS.fields)


READER = "rule `above` has changed: a rule whose matches it reads: `over`"


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (dataclasses.replace(LIMITS, tie_break=()), "`tie_break`"),
        (dataclasses.replace(LIMITS, tie_break=("other", "n")), "`tie_break`"),
        (settings(op=None), "`op`"),
        (dataclasses.replace(settings(op=None), tie_break=()), "`tie_break`, `op`"),
        (dataclasses.replace(LIMITS, event_time="later"), "`event_time`"),
        (dataclasses.replace(LIMITS, fields=with_type("most", "float")), "column `most`"),
    ],
)
def test_a_table_that_has_changed_is_named_and_not_what_follows_from_it(table: Stream, expected: str) -> None:
    assert differences(with_table(), with_table(table)) == (
        f"table `limits` has changed: {expected}; {READER}"
    )


def test_a_table_that_all_key_groups_keep_now_is_named() -> None:
    text = WITH_TABLE.replace(" FOR EACH limits", "")
    expected = f"table `limits` has changed: `replicated` or `static`; {READER}"
    assert (
        differences(with_table(text=text), with_table(settings(kind=TableKind.REPLICATED), text)) == expected
    )


def test_rules_that_have_changed_beside_their_table_are_named_too() -> None:
    text = WITH_TABLE.replace("w > 3", "w > 4")
    told = "rule `over` has changed: its conditions"
    assert differences(with_table(), with_table(text=text)) == f"{told}; {READER}"
    table = dataclasses.replace(LIMITS, tie_break=())
    assert differences(with_table(), with_table(table, text)) == (
        f"table `limits` has changed: `tie_break`; {told}; {READER}"
    )
    more = WITH_TABLE.replace("AS most,", "AS most, LAST(a.limits.other) AS other,")
    assert "table" not in differences(with_table(), with_table(text=more))


def test_an_identity_from_before_tables_were_told_says_what_it_can() -> None:
    (then, *rest) = with_table()
    old = dataclasses.replace(then, rules=tuple(dataclasses.replace(rule, tables=()) for rule in then.rules))
    now = with_table(dataclasses.replace(LIMITS, tie_break=()))
    assert "its meaning" in differences([old, *rest], now)
