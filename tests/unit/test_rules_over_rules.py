"""Rules over rules: the examples of their semantics, and what docs/guides/rules_over_rules.md shows."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import cep.commands.cli
from cep.compiler import ir
from cep.compiler.compile import check_sources, compile_sources
from cep.compiler.lowering.chains import in_reading_order
from cep.engine.chains.chain import Chain, units_of
from cep.engine.corrections.corrector import restored
from cep.engine.matching.matcher import Matcher
from cep.errors import Source, StateError
from cep.local.find_matches import find_matches
from cep.local.given_events import event_table
from cep.program.program import OUTCOME, TIMEOUT
from cep.rule_set import Corrections, RuleSet
from tests.chain_cases import ChainCase, read_chains
from tests.letters import LETTERS, read_letters
from tests.oracle import Match
from tests.oracle.chains import find_chained

ROOT = Path(__file__).parents[2]
SEMANTICS = (ROOT / "docs/language/semantics/rules_over_rules.md").read_text()
PAGE = (ROOT / "docs" / "guides" / "rules_over_rules.md").read_text()
CASES = list(read_chains("semantics/rules_over_rules.md", SEMANTICS))
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)

STREAMS = {LETTERS.name: LETTERS}


def compiled(case: ChainCase) -> RuleSet:
    return compile_sources([Source(case.name, case.texts)], STREAMS).rule_set


def in_reading_rows(case: ChainCase, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return matches with times in microseconds, those of a rule behind those of the rules above it."""
    order = [name for name, _ in case.rules]
    start = datetime(1970, 1, 1, tzinfo=UTC)
    plain = [
        dict(row) | {"match_end": (row["match_end"] - start) // timedelta(microseconds=1)} for row in rows
    ]
    return sorted(plain, key=lambda row: order.index(row["rule"]))


def oracle_matches(case: ChainCase) -> list[str]:
    rules, problems = check_sources([Source(case.name, case.texts)], STREAMS)
    assert not [problem for problem in problems if problem.is_error]
    ids: dict[int, str] = {}

    def id_of(rule: ir.Rule, match: Match) -> str:
        return ids.setdefault(id(match), f"{len(ids):09}")

    ordered = in_reading_order(rules, lambda rule: rule)
    found = find_chained(ordered, STREAMS, {LETTERS.name: read_letters(case.events).rows}, id_of)
    return case.shown(
        [
            {
                **match.measures,
                "rule": rule.name,
                "match_id": id_of(rule, match),
                "match_end": match.end_us,
                OUTCOME: TIMEOUT if match.is_timeout else None,
            }
            for rule in ordered
            for match in found[rule.name]
        ]
    )


def test_there_are_examples() -> None:
    assert len(CASES) >= 24


@each_case
def test_the_oracle_finds_the_matches_of_the_example(case: ChainCase) -> None:
    assert sorted(oracle_matches(case)) == sorted(case.matches)


@each_case
def test_the_engine_finds_the_matches_of_the_example(case: ChainCase) -> None:
    found = find_matches(case.texts, STREAMS, read_letters(case.events).rows)
    assert sorted(case.shown(in_reading_rows(case, found))) == sorted(case.matches)


@each_case
def test_the_engine_finds_them_event_by_event_restored_after_each(case: ChainCase) -> None:
    rules = compiled(case)
    chain = Chain(rules)
    found: list[pa.Table] = []
    for row in sorted(read_letters(case.events).rows, key=lambda row: row["ts"]):
        chain.advance(row["ts"] - 1, found.append)
        chain.push_events(LETTERS, event_table(LETTERS, [row]))
        matchers = [of for of in chain.matchers if isinstance(of, Matcher)]
        chain = Chain(rules, [Matcher.restore(of.program, of.snapshot()) for of in matchers])
    chain.finish(found.append)
    rows = rules.in_order(found).to_pylist()
    assert sorted(case.shown(in_reading_rows(case, rows))) == sorted(case.matches)


# ---------------------------------------------------------------- around the engine

INNER = "RULE m FROM letters PARTITION BY key PATTERN a->{2} WITHIN 5 SECONDS DEFINE a AS letter = 'A'"
OUTER = "RULE n FROM MATCHES OF m PARTITION BY key PATTERN m->{2} WITHIN 1 MINUTE DEFINE m AS TRUE"


def rule_set(*texts: str) -> RuleSet:
    return compile_sources([Source("rules.cep", "\n".join(texts))], STREAMS).rule_set


def test_rules_may_stand_in_any_order_and_in_several_files() -> None:
    together = rule_set(INNER, OUTER)
    for sources in ([OUTER, INNER], [INNER, OUTER]):
        files = [Source(f"{number}.cep", text) for number, text in enumerate(sources)]
        found = compile_sources(files, STREAMS).rule_set
        assert [program.fingerprint for program in found.programs] == [
            program.fingerprint for program in together.programs
        ]
    assert [[stream.name for stream in program.streams] for program in together.programs] == [
        ["letters"],
        ["m"],
    ]
    assert list(together.streams) == ["letters"]


def test_a_rule_that_changes_changes_the_rules_that_read_it() -> None:
    before = rule_set(INNER, OUTER)
    after = rule_set(INNER.replace("'A'", "'B'"), OUTER)
    inner, outer = (Matcher(program).snapshot() for program in before.programs)
    with pytest.raises(StateError) as error:
        Matcher.restore(after.programs[1], outer)
    assert "rule `n` has changed: a rule whose matches it reads: `m`" in str(error.value)
    with pytest.raises(StateError):
        Matcher.restore(after.programs[0], inner)
    titled = rule_set(INNER.replace("RULE m", "RULE m TITLE 'said only'"), OUTER)
    Matcher.restore(titled.programs[1], outer)


def test_a_program_without_matches_has_the_identity_that_it_had() -> None:
    alone, together = rule_set(INNER), rule_set(INNER, OUTER)
    assert alone.programs[0].identity == together.programs[0].identity
    assert all(len(order) == 4 for order in alone.programs[0].identity.shared.to_json()["orders"])


def test_a_late_event_takes_back_a_match_and_what_was_found_over_it() -> None:
    inner = INNER.replace("PATTERN a->{2}", "PATTERN a -> !b -> c").replace(
        "DEFINE a AS letter = 'A'",
        "DEFINE a AS letter = 'A', b AS letter = 'B', c AS letter = 'C'",
    )
    rules = rule_set(inner, OUTER).with_corrections(Corrections(60_000_000))
    chain = Chain(rules)
    assert len(chain.matchers) == 1
    rows: list[dict[str, Any]] = []

    def put(table: pa.Table) -> None:
        rows.extend(table.select(["rule", "kind", "revision"]).to_pylist())

    def arrive(letters: str, until_us: int) -> list[tuple[str, str, int]]:
        nonlocal chain
        rows.clear()
        chain.push_events(LETTERS, event_table(LETTERS, read_letters(letters).rows))
        chain.advance(until_us, put)
        unit = units_of(rules)[0]
        matchers = [restored(unit, matcher.snapshot(), rules.corrections) for matcher in chain.matchers]
        chain = Chain(rules, matchers)
        return [(row["rule"], row["kind"], row["revision"]) for row in rows]

    found = arrive("A@0 C@1 A@2 C@4", 5_000_000)
    assert sorted(found) == [("m", "match", 0), ("m", "match", 0), ("n", "match", 0)]
    assert sorted(arrive("B@3", 6_000_000)) == [("m", "retract", 1), ("n", "retract", 1)]
    assert sorted(arrive("A@5.5 C@5.75", 7_000_000)) == [("m", "match", 0), ("n", "match", 0)]


def test_rules_of_chosen_streams_bring_the_rules_over_them() -> None:
    assert len(rule_set(INNER, OUTER).of_streams(["letters"]).programs) == 2
    assert rule_set(INNER, OUTER).of_streams(["m"]).programs == ()


def test_a_late_event_is_late_for_a_rule_that_is_behind() -> None:
    held = INNER.replace("DEFINE", "MATCH PREFERRED DEFINE")
    outer = OUTER.replace("MATCHES OF m", "MATCHES OF m, letters").replace("m->{2}", "m -> c")
    rules = rule_set(held, outer.replace("m AS TRUE", "m ON m, c ON letters AS letter = 'C'"))
    assert rules.chains.lags_us == (0, 5_000_000)
    chain = Chain(rules)
    chain.advance(10_000_000, lambda table: None)
    late = read_letters("C@9").rows
    from cep.engine.prepare.predicates import prepare

    prepared = prepare(rules.programs[1], event_table(LETTERS, late), LETTERS)
    assert chain.push(1, prepared).num_rows == 1
    assert chain.matchers[1].counters.late == 1


def test_two_sets_with_rules_of_one_name_do_not_feed_each_other() -> None:
    one, other = rule_set(INNER, OUTER), rule_set(INNER.replace("'A'", "'B'"), OUTER.replace("{2}", "{3}"))
    both = RuleSet((*one.programs, *other.programs))
    assert [(feed.source, feed.target) for feed in both.chains.feeds] == [(0, 1), (2, 3)]


RISK = """
RULE scored FROM letters PARTITION BY key PATTERN a DEFINE a AS x > 0 MEASURES a.letter AS who, a.x AS score
RULE risk FROM MATCHES OF scored PARTITION BY who PATTERN z LET total = SUM(score) OVER LAST 10 SECONDS
  DEFINE z AS TRUE MEASURES z.total AS total
RULE risen FROM MATCHES OF risk PARTITION BY who PATTERN y z DEFINE z AS total > y.total
  MEASURES z.total AS total
RULE daily FROM MATCHES OF risen PARTITION BY who WINDOW TUMBLING 1 DAY MEASURES MAX(total) AS total
RULE also FROM letters PARTITION BY key PATTERN a DEFINE a AS x > 5 MEASURES a.letter AS who
RULE counted FROM MATCHES OF also PARTITION BY who WINDOW TUMBLING 1 DAY MEASURES COUNT(*) AS n
RULE moved FROM MATCHES OF risk PARTITION BY total PATTERN z DEFINE z AS TRUE MEASURES z.who AS who
"""


@pytest.mark.parametrize("within_us", [None, 60_000_000])
def test_a_key_that_was_a_measure_goes_on_under_its_name(within_us: int | None) -> None:
    """A risk score by its entity, and its roll-up; another rule may measure the same."""
    rules = rule_set(RISK)
    rules = rules.with_corrections(None if within_us is None else Corrections(within_us))
    same_key = {(feed.stream.name, feed.same_key) for feed in rules.chains.feeds}
    assert same_key == {
        *(("scored", False), ("risk", True), ("risk", False), ("risen", True), ("also", False)),
    }
    chain = Chain(rules)
    rows: list[dict[str, Any]] = []
    letters = read_letters("A@0(x=3) B@1(x=7) A@2(x=4) B@3(x=1) A@4(x=6)").rows
    chain.push_events(LETTERS, event_table(LETTERS, letters))
    chain.finish(lambda table: rows.extend(table.to_pylist()))
    of_rule = {name: [(row["who"], row.get("total")) for row in rows if row["rule"] == name] for name in
               ("risk", "risen", "daily", "counted")}  # fmt: skip
    assert of_rule["risk"] == [("A", 3.0), ("B", 7.0), ("A", 7.0), ("B", 8.0), ("A", 13.0)]
    assert of_rule["risen"] == [("A", 7.0), ("B", 8.0)]
    assert of_rule["daily"] == [("A", 7.0), ("B", 8.0)]
    assert of_rule["counted"] == [("A", None), ("B", None)]
    assert rules.match_schema.names.count("who") == 1


# ---------------------------------------------------------------- the page


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that the page describes, which is the current one."""
    monkeypatch.chdir(tmp_path)
    Path("streams.yaml").write_text(blocks("yaml")[0])
    Path("intrusion.cep").write_text(blocks("cep")[0])
    for name, text in zip(("requests", "logins"), blocks("json"), strict=True):
        Path(f"{name}.jsonl").write_text(text)
    return tmp_path


def cep_runs(command: str) -> Any:
    result = CliRunner().invoke(cep.commands.cli.main, shlex.split(command), prog_name="cep")
    assert result.exit_code == 0, result.output
    return result


def test_the_command_prints_what_the_page_shows(folder: Path) -> None:
    (command, shown) = re.findall(r"^\$ cep (.*)\n((?:(?!\$).*\n)*)", blocks("console")[0], re.MULTILINE)[0]
    result = cep_runs(command)
    assert result.stdout == shown
    counted = Counter(json.loads(line)["rule"] for line in shown.splitlines())
    assert counted == {"scan": 2, "scan_then_login": 2, "account_of_many": 1}
    told = cep_runs(command.replace(" --quiet", ""))
    assert re.search(r"matches +5  account_of_many 1, scan 2, scan_then_login 2", told.stderr)
    assert cep_runs(command + " --as-stream").stdout == shown


def test_explain_says_what_the_page_shows(folder: Path) -> None:
    (shown,) = blocks("explain")
    assert shown in cep_runs("explain intrusion.cep").stdout
    mermaid = cep_runs("explain intrusion.cep --format mermaid").stdout
    assert 'r0_match ==>|"matches of scan"| r1_0' in mermaid
    assert (
        '"0.match" -> "1.0" [label="matches of scan", style=dotted]'
        in cep_runs("explain intrusion.cep --format dot").stdout
    )


def test_each_from_of_the_page_is_read(folder: Path) -> None:
    rules = """
RULE scan FROM requests PARTITION BY ip PATTERN a WITHIN 1 MINUTE DEFINE a AS status = 404
RULE burst FROM requests PARTITION BY ip PATTERN a WITHIN 1 MINUTE DEFINE a AS status = 500
RULE reader {} PARTITION BY ip PATTERN s -> e WITHIN 1 MINUTE DEFINE s ON scan, e ON logins AS success
"""
    lines = blocks("from")[0].splitlines()
    assert len(lines) == 4
    for line in lines:
        Path("each.cep").write_text(rules.format(line))
        assert cep_runs("check each.cep").stdout == "checked 1 file, 3 rules: no problems\n"
