"""The checkpoint directory: the rules lie in it, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from cep.compiler.compile import compile_sources
from cep.errors import Source, StateError
from cep.schema.stream import CsvLayout, Field, Stream
from spark_runtime.pipeline.checkpoint import Checkpoint, SourceIdentity, open_checkpoint
from spark_runtime.pipeline.delivering import Notes
from spark_runtime.pipeline.stored_rules import StoredRules
from spark_runtime.storage.checkpoint_files import LocalFiles

STREAM = Stream(
    "payments",
    (
        Field("card", "string", path=("card", "id")),
        Field("ts", "timestamp", unit="seconds"),
        Field("x", "double"),
    ),
    "ts",
    ("x",),
    lateness_us=5,
    csv=CsvLayout(";", columns=("card", "ts", "x")),
)
RULE = """RULE {name} TITLE '{title}' FROM payments PARTITION BY card PATTERN a -> b WITHIN {minutes} MINUTES
DEFINE a AS x < 1, b AS x > a.x MEASURES b.x AS {name}_x"""
SOURCES = {"payments": SourceIdentity("json", "/in")}


def rule(name: str, minutes: int = 5, title: str = "t") -> str:
    return RULE.format(name=name, minutes=minutes, title=title)


def stored(*texts: str, stream: Stream = STREAM) -> StoredRules:
    sources = tuple(Source(f"{number}.cep", text) for number, text in enumerate(texts))
    return StoredRules.of(sources, compile_sources(sources, {stream.name: stream}).rule_set)


def opened(path: Path, rules: StoredRules, sources: dict[str, SourceIdentity] = SOURCES) -> Checkpoint:
    return open_checkpoint(LocalFiles(str(path)), str(path), rules, sources, 2)


def begin(path: Path, rules: StoredRules) -> Checkpoint:
    """Return a checkpoint whose query has a micro-batch."""
    checkpoint = opened(path, rules)
    (path / "query/commits").mkdir(parents=True)
    (path / "query/commits/0").write_text("v1\n{}")
    return checkpoint


def refusal(path: Path, rules: StoredRules) -> str:
    with pytest.raises(StateError) as caught:
        opened(path, rules)
    return str(caught.value)


def test_the_rules_are_in_the_checkpoint_and_compile_to_the_same_again(tmp_path: Path) -> None:
    rules = stored(rule("one"), rule("two", 7))
    opened(tmp_path, rules)
    read = StoredRules.of_json(json.loads((tmp_path / "rules.json").read_text()))
    assert read == rules
    assert read.streams == {"payments": STREAM}
    again = compile_sources(read.texts, read.streams).rule_set
    assert StoredRules.of(read.texts, again) == rules


def test_an_unchanged_restart_writes_nothing(tmp_path: Path) -> None:
    first = begin(tmp_path, stored(rule("one")))
    before = {file.name: file.stat().st_mtime_ns for file in tmp_path.glob("*.json")}
    second = opened(tmp_path, stored(rule("one")))
    assert (second.run_id, second.n_groups) == (first.run_id, first.n_groups)
    assert {file.name: file.stat().st_mtime_ns for file in tmp_path.glob("*.json")} == before


def test_what_is_only_said_about_a_rule_is_brought_up_to_date(tmp_path: Path) -> None:
    begin(tmp_path, stored(rule("one")))
    stream = dataclasses.replace(STREAM, lateness_us=99)
    changed = stored(rule("one", title="another"), stream=stream)
    opened(tmp_path, changed)
    read = StoredRules.of_json(json.loads((tmp_path / "rules.json").read_text()))
    assert read == changed != stored(rule("one"))


def test_rules_in_another_order_go_on(tmp_path: Path) -> None:
    first = begin(tmp_path, stored(rule("one"), rule("two", 7)))
    second = opened(tmp_path, stored(rule("two", 7), rule("one")))
    assert second.run_id == first.run_id


@pytest.mark.parametrize(("then", "how"), [(True, "with"), (False, "without")])
def test_corrections_are_neither_added_nor_removed(tmp_path: Path, then: bool, how: str) -> None:
    rules = dataclasses.replace(stored(rule("a")), has_corrections=then)
    other = dataclasses.replace(rules, has_corrections=not then)
    opened(tmp_path, other)
    begin(tmp_path, rules)  # nothing had begun
    for others in (other, dataclasses.replace(stored(rule("a", 6)), has_corrections=not then)):
        with pytest.raises(StateError, match=f"E0649.*the stored state was written {how} corrections"):
            open_checkpoint(
                LocalFiles(str(tmp_path)), str(tmp_path), others, SOURCES, 8, accepts_other_rules=True
            )
    assert opened(tmp_path, rules)


def test_the_rule_that_has_changed_is_named(tmp_path: Path) -> None:
    begin(tmp_path, stored(rule("one"), rule("two"), rule("three")))
    changed = stored(rule("one"), rule("two", 6), rule("three"))
    assert refusal(tmp_path, changed) == (
        f"error[E0701]: the checkpoint `{tmp_path}` was written by other rules: "
        "rule `two` has changed: its window or limits\n"
        "help: without `reload: never` in the pipeline file the rules may change; or give them an empty "
        "checkpoint directory; the former rules are in rules.json there"
    )


def test_many_changes_are_counted(tmp_path: Path) -> None:
    names = ("one", "two", "three", "four")
    begin(tmp_path, stored(*map(rule, names), rule("old")))
    changed = stored(*(rule(name, 6) for name in names))
    assert (
        refusal(tmp_path, changed)
        .splitlines()[0]
        .endswith(
            "rule `one` has changed: its window or limits; rule `two` has changed: its window or limits; "
            "rule `three` has changed: its window or limits; 2 more"
        )
    )


def test_a_first_micro_batch_that_no_sink_has_may_be_that_of_other_rules(tmp_path: Path) -> None:
    first = opened(tmp_path, stored(rule("one")))
    (tmp_path / "query/offsets").mkdir(parents=True)
    (tmp_path / "query/offsets/0").write_text("v1")
    same = opened(tmp_path, stored(rule("one")))
    assert same.run_id == first.run_id
    second = opened(tmp_path, stored(rule("one", 6)))
    assert second.run_id != first.run_id
    assert not (tmp_path / "query").exists()


def test_a_first_micro_batch_that_sinks_may_have_remains_that_of_its_rules(tmp_path: Path) -> None:
    first = opened(tmp_path, stored(rule("one")))
    (tmp_path / "query/offsets").mkdir(parents=True)
    (tmp_path / "query/offsets/0").write_text("v1")
    Notes(LocalFiles(str(tmp_path))).begin(0)
    assert opened(tmp_path, stored(rule("one"))).run_id == first.run_id
    assert "error[E0701]" in refusal(tmp_path, stored(rule("one", 6)))
    others = {"payments": SourceIdentity("json", "/elsewhere")}
    with pytest.raises(StateError, match="E0710"):
        open_checkpoint(LocalFiles(str(tmp_path)), str(tmp_path), stored(rule("one")), others, 8)
    assert opened(tmp_path, stored(rule("one"))).run_id == first.run_id


def test_before_the_first_micro_batch_other_rules_replace_what_is_there(tmp_path: Path) -> None:
    first = opened(tmp_path, stored(rule("one")))
    (tmp_path / "files").mkdir()
    (tmp_path / "files/payments.log").write_text("read")
    second = opened(tmp_path, stored(rule("one", 6)))
    assert second.run_id == first.run_id
    assert not (tmp_path / "files").exists()
    read = StoredRules.of_json(json.loads((tmp_path / "rules.json").read_text()))
    assert read == stored(rule("one", 6))


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ('{"format": 3, "rules": ["aa"]}', "has format 3, this version reads 4"),
        ('{"format": 5}', "has format 5, this version reads 4"),
        ("{}", "does not say its format, this version reads 4"),
        ("[", "does not say its format, this version reads 4"),
    ],
)
def test_a_checkpoint_of_another_format_is_refused_with_both_versions(
    tmp_path: Path, text: str, fact: str
) -> None:
    (tmp_path / "pipeline.json").write_text(text)
    assert refusal(tmp_path, stored(rule("one"))) == (
        f"error[E0706]: the checkpoint `{tmp_path}` {fact}\n"
        "help: continue with the version of spark-cep that wrote it, or start with an empty checkpoint "
        "directory"
    )


def test_rules_of_another_format_are_refused_with_both_versions(tmp_path: Path) -> None:
    begin(tmp_path, stored(rule("one")))
    (tmp_path / "rules.json").write_text('{"format": 2}')
    assert refusal(tmp_path, stored(rule("one"))).startswith(
        f"error[E0706]: the checkpoint `{tmp_path}` has format 2 in rules.json, this version reads 1\n"
    )


@pytest.mark.parametrize(
    "damage",
    [
        lambda found: {**found, "programs": 5},
        lambda found: {**found, "programs": [{}]},
        lambda found: {**found, "texts": [["a"]]},
        lambda found: {**found, "streams": [{"name": "s"}]},
        lambda found: {**found, "streams": [{**found["streams"][0], "more": 1}]},
        lambda found: {name: value for name, value in found.items() if name != "texts"},
        lambda found: [found],
    ],
)
def test_damaged_rules_are_refused_with_the_way_out(tmp_path: Path, damage: Any) -> None:
    begin(tmp_path, stored(rule("one")))
    file = tmp_path / "rules.json"
    file.write_text(json.dumps(damage(json.loads(file.read_text()))))
    assert refusal(tmp_path, stored(rule("one"))) == (
        f"error[E0702]: `{file}`: the file is damaged\n"
        "help: restore the checkpoint directory as a whole, or start with an empty one"
    )
