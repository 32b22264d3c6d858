"""NaN and infinities have one form in text, which every output writes and every reader reads."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cep.formats.files import read_events
from cep.formats.late_events import late_events
from cep.formats.text import json_lines
from cep.local.match_file import match_file
from cep.output.files import write_late, write_table
from cep.output.rows import match_rows
from cep.rule_set import RuleSet
from cep.rulebook import compile_rulebook, load_rulebook
from cep.schema.stream import Field, Stream
from cep.schema.text_values import NUMBER_WORDS, json_text
from spark_runtime.sinks.json_rows import json_rows
from tests import odd_numbers

STREAM = Stream(
    "s",
    (Field("ts", "timestamp"), Field("x", "double"), Field("f", "float"), Field("d", "decimal(10,2)")),
    "ts",
)


def rules_of(folder: Path, text: str) -> RuleSet:
    (folder / "streams.yaml").write_text(odd_numbers.STREAMS)
    (folder / "rule.cep").write_text(text)
    return compile_rulebook(load_rulebook([folder / "rule.cep"])).rule_set


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_matches_are_the_stream_and_the_table_of_the_next_rule(tmp_path: Path, suffix: str) -> None:
    rules = rules_of(tmp_path, odd_numbers.FIRST)
    (tmp_path / "events.jsonl").write_text(odd_numbers.lines())
    result = match_file(rules, tmp_path / "events.jsonl")
    written = tmp_path / f"matches{suffix}"
    write_table(written, result.matches, match_rows(rules, result.matches))
    if suffix == ".csv":  # a CSV file holds no arrays
        odd = odd_numbers.STREAMS.replace(", xs: array<double>", ", xs: string")
        (tmp_path / "next").mkdir()
        (tmp_path / "next/streams.yaml").write_text(odd)
        (tmp_path / "next/rule.cep").write_text(odd_numbers.SECOND)
        again = compile_rulebook(load_rulebook([tmp_path / "next/rule.cep"])).rule_set
    else:
        again = rules_of(tmp_path, odd_numbers.SECOND)
    second = match_file(again, {"second": written, "known": written})
    assert second.dead_letters.to_pylist() == []
    assert odd_numbers.found(second.matches.to_pylist()) == odd_numbers.expected()
    floats = {row["id"]: row["f"] for row in result.matches.to_pylist()}
    for row in second.matches.to_pylist():
        assert np.float32(row["f"]).tobytes() == np.float32(floats[row["id"]]).tobytes()
        assert row["has_xs"]


@pytest.mark.parametrize("bare", [False, True])
def test_bare_words_and_texts_are_one_number(tmp_path: Path, bare: bool) -> None:
    rules = rules_of(tmp_path, odd_numbers.FIRST)
    (tmp_path / "events.jsonl").write_text(odd_numbers.lines(bare))
    result = match_file(rules, tmp_path / "events.jsonl")
    assert odd_numbers.found(result.matches.to_pylist(), ["x"]) == odd_numbers.expected(["x"])


def test_what_is_written_is_json(tmp_path: Path) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    strict = json.JSONDecoder(parse_constant=refuse)
    numbers = [math.nan, math.inf, -math.inf, -0.0, 1e308]
    words = ["NaN", "Infinity", "-Infinity", -0.0, 1e308]
    assert strict.decode(json_text({"x": numbers, "y": {"z": math.nan}})) == {"x": words, "y": {"z": "NaN"}}
    table = pa.table({"x": pa.array(numbers), "l": pa.array([[n, n] for n in numbers])})
    assert [strict.decode(text)["l"] for text in json_rows(table)] == [[word, word] for word in words]


def test_only_these_texts_are_numbers() -> None:
    texts = ('"nan"', '"-NaN"', '"+Infinity"', '"Inf"', '" NaN"', '"NaN "', '"1.5"', '""')
    given = [f'{{"ts":"2024-05-01","x":{text}}}'.encode() for text in texts]
    more = [b'{"ts":"2024-05-01","x":"\\u004eaN"}', b'{"ts":"2024-05-01","x":"-Infinity"}']
    for n in (1, 20):  # one by one, and together
        events, _, problems = json_lines.parse([*given, *more] * n, STREAM)
        assert len(problems) == len(texts) * n
        assert problems[0] == (0, 'field `x` is not of type double: "nan"')
        assert odd_numbers.bits(events.column("x")[0].as_py()) == b"nan"
        assert events.column("x")[1].as_py() == -math.inf


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_late_events_with_them_are_read_again(tmp_path: Path, suffix: str) -> None:
    decimals = [None, None, None, -0.0, None, 0.5]  # readers refuse what a decimal cannot hold
    numbers = [*NUMBER_WORDS.values(), -0.0, 1e300, 0.5]
    events = pa.table([[0] * 6, numbers, numbers, decimals], names=[field.name for field in STREAM.fields])
    file = tmp_path / f"late{suffix}"
    write_late(file, {STREAM: late_events(events, np.zeros(6, np.int64), STREAM)})
    (chunk,) = read_events(file, STREAM)
    assert chunk.dead_letters.to_pylist() == []
    for name, given in (("x", numbers), ("f", [*numbers[:4], math.inf, 0.5])):
        again = chunk.events.column(name).to_pylist()
        assert [odd_numbers.bits(x) for x in again] == [odd_numbers.bits(x) for x in given]
    assert chunk.events.column("d").to_pylist() == decimals
