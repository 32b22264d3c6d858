"""`cep plot` draws automata and time lines: what a picture has, and that no words cover others."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from cep.commands.cli import main
from tests.pages import DOCS, cep_prints
from tests.unit.test_readme import folder as folder

ROOT = Path(__file__).parents[3]
SVG = "{http://www.w3.org/2000/svg}"
ALL_ROWS = "AFTER MATCH SKIP PAST LAST EVENT\nALL ROWS PER MATCH"


def plot(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["plot", *arguments])


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


def words(text: str) -> list[str]:
    return [label.text or "" for label in parsed(text).iter(f"{SVG}text")]


def boxes(text: str) -> list[tuple[str, float, float, float, float]]:
    """Return each line of text: its words, left, right, top and bottom, with letters of a usual width."""
    found = []
    for group in [parsed(text), *parsed(text).iter(f"{SVG}g")]:
        moved = re.match(r"translate\(0 (\d+)\)", group.get("transform", ""))
        down = float(moved[1]) if moved else 0.0
        for label in group.findall(f"{SVG}text"):
            line, x, y = label.text or "", float(label.get("x", "")), float(label.get("y", "")) + down
            width = 6.0 * len(line)
            left = x - {"start": 0.0, "middle": width / 2, "end": width}[label.get("text-anchor", "")]
            found.append((line, left, left + width, y - 9, y + 2))
    return found


def assert_nothing_covers(text: str) -> None:
    shown = boxes(text)
    width, height = map(float, parsed(text).get("viewBox", "").split()[2:])
    for line, left, right, top, bottom in shown:
        assert left >= 0, line
        assert right <= width, line
        assert top >= 0, line
        assert bottom <= height, line
    for (line, left, right, top, bottom), other in combinations(shown, 2):
        assert right <= other[1] or other[2] <= left or bottom <= other[3] or other[4] <= top, (line, other)


@pytest.mark.parametrize("path", sorted((ROOT / "rules").glob("*/*.cep")), ids=lambda path: path.stem)
def test_the_automaton_of_each_rule_of_the_library_is_drawn_and_no_words_cover_others(path: Path) -> None:
    drawn = plot(str(path)).stdout
    assert_nothing_covers(drawn)
    shown = plot(str(path), "--format", "mermaid").stdout
    labels = {
        re.sub(r"#(\d+);", lambda m: chr(int(m[1])), label) for label in re.findall(r'\|"(.*?)"\|', shown)
    }
    read = {label for label in labels if label.startswith("matches of")}
    assert labels - read <= set(words(drawn))
    assert len(re.findall("<circle", drawn)) == len(re.findall(r"^    r\d+_\w+\(\(", shown, re.MULTILINE))
    assert all(f"reads {label}" in "".join(words(drawn)) for label in read)


def test_what_ends_a_run_is_below_the_state_also_what_without_and_possessive_loops_exclude() -> None:
    for name, absent in (("trading/layering", "!taken"), ("security/slow_guessing", "!burst")):
        assert absent in words(plot(str(ROOT / f"rules/{name}.cep")).stdout), name


def test_arrows_that_skip_states_or_go_back_are_arcs_with_their_own_heights(tmp_path: Path) -> None:
    (tmp_path / "streams.yaml").write_text(
        "streams:\n  s: {event_time: ts, schema: {k: string, ts: timestamp, x: int}}\n"
    )
    (tmp_path / "r.cep").write_text(
        "RULE r FROM s PARTITION BY k PATTERN a -> (b c? | d->+ e)->{1,2} -> !f -> g WITHIN 1 HOUR\n"
        "DEFINE a AS x = 1, b AS x = 2, c AS x = 3, d AS x = 4, e AS x = 5, f AS x = 6, g AS x = 7\n"
    )
    drawn = plot(str(tmp_path / "r.cep")).stdout
    assert drawn.count("<path d") > 15
    assert "!f" in words(drawn)
    arcs = re.findall(r'd="M[\d.]+ [\d.]+C[\d.]+ ([\d.]+) .*?class="line"', drawn)
    assert len(set(arcs)) > 4


def test_a_picture_is_dark_or_light_and_needs_nothing_else(folder: Path) -> None:
    result = plot("card_testing.cep", "--format", "html", "--output", "rule.html")
    assert (result.exit_code, result.stdout) == (0, "")
    page = Path("rule.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "@media (prefers-color-scheme: dark)" in page
    light, dark = re.findall(r":root \{(.*?)\}", page, re.DOTALL)
    names = set(re.findall(r"(--\w+):", light))
    assert names == set(re.findall(r"(--\w+):", dark)) == set(re.findall(r"var\((--\w+)\)", page))
    assert re.findall(r'(?:src|href)="|url\((?!#)|@import|<script', page) == []
    assert page.count("http") == 1  # the name of SVG


def test_the_pictures_of_the_page_are_what_the_commands_draw(folder: Path) -> None:
    page = (DOCS / "reference/cli.md").read_text()
    commands = re.findall(r"^\$ cep (plot .*)$", page, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        cep_prints(command)
        name = command.split()[-1]
        assert Path(name).read_text() == (DOCS / "images" / name).read_text(), f"copy {name} to docs/images"
        assert f"](../images/{name})" in page


def test_the_picture_of_the_page_about_trading_is_what_the_command_draws() -> None:
    page = (DOCS / "start/trading.md").read_text()
    [command] = re.findall(r"`cep (plot .*?)`", page)
    drawn = cep_prints(command.replace("rules/", f"{ROOT}/rules/"))
    assert drawn == (DOCS / "images/spoofing.svg").read_text(), "copy it to docs/images"
    assert "](../images/spoofing.svg)" in page


def about(text: str) -> list[str]:
    """Return what appears when the pointer is over each part of a picture."""
    return [title.text or "" for group in parsed(text).iter(f"{SVG}g") for title in group.iter(f"{SVG}title")]


def test_a_time_line_has_the_events_of_matches_in_their_steps(folder: Path) -> None:
    drawn = plot("card_testing.cep", "--input", "events.jsonl", "--key", "c1").stdout
    span, *marks = about(drawn)
    assert span.endswith("2024-05-01T10:00:00Z to 2024-05-01T10:04:00Z, 4 minutes")
    assert [mark.split()[:2] for mark in marks] == [
        ["probe", "2024-05-01T10:00:00Z"],
        ["probe", "2024-05-01T10:00:40Z"],
        ["probe", "2024-05-01T10:01:10Z"],
        ["cashout", "2024-05-01T10:04:00Z"],
    ]
    assert marks[3].endswith("tx_id t5, card_id c1, amount 949.0, approved true")
    assert (drawn.count('class="match"'), drawn.count('class="near"')) == (4, 0)
    assert_nothing_covers(drawn)


def test_an_attempt_is_grey_and_has_the_band_of_its_window(folder: Path) -> None:
    drawn = plot("card_testing.cep", "--input", "events.jsonl", "--key", "c2").stdout
    assert (drawn.count('class="match"'), drawn.count('class="near"')) == (0, 1)
    [(start, width)] = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)" .*class="band"', drawn)
    assert float(start) == 24.0
    assert float(width) == 912.0  # the whole picture: nothing ends later than the window
    assert any(line.startswith("attempt: the input ended") for line in words(drawn))
    assert "10:10" in words(drawn)
    assert_nothing_covers(drawn)


def test_matches_with_all_rows_have_their_events_and_others_their_ends(folder: Path) -> None:
    for name, text in (("all", ALL_ROWS), ("one", "AFTER MATCH SKIP PAST LAST EVENT")):
        rule = Path("card_testing.cep").read_text().replace("AFTER MATCH SKIP PAST LAST EVENT", text)
        Path(f"{name}.cep").write_text(rule)
        cep_prints(f"match {name}.cep --input events.jsonl --output {name}.jsonl --quiet")
        cep_prints(f"match {name}.cep --input events.jsonl --output {name}.parquet --quiet")
        cep_prints(f"match {name}.cep --input events.jsonl --output {name}.csv --quiet")
    of_all, of_one = plot("all.jsonl").stdout, plot("one.jsonl").stdout
    assert [mark.split()[0] for mark in about(of_all)[1:]] == ["probe", "probe", "probe", "cashout"]
    assert of_one.count("<circle") == 2
    for drawn in (of_all, of_one):
        assert {"card_testing, c1", "probes 3, probed 3.5, loss 949.0"} <= set(words(drawn))
        assert_nothing_covers(drawn)
    assert words(plot("all.parquet").stdout) == words(of_all)
    assert about(plot("one.parquet").stdout) == about(of_one)
    assert about(plot("all.csv").stdout)[1:] == about(of_all)[1:]
    assert "probes 3, probed 3.5, loss 949" in words(plot("one.csv").stdout)
    assert words(plot("one.jsonl", "--key", "c9").stdout) == ["0 matches of no rule"]


def test_only_so_many_matches_are_drawn_and_the_others_counted(tmp_path: Path) -> None:
    n = 503
    times = pa.array(range(1_700_000_000_000_000, 1_700_000_000_000_000 + n), pa.timestamp("us", tz="UTC"))
    table = {"rule": ["r"] * n, "k": ["a"] * n, "match_id": [str(number) for number in range(n)]}
    pq.write_table(pa.table({**table, "match_start": times, "match_end": times}), tmp_path / "part.parquet")
    drawn = plot(str(tmp_path)).stdout
    assert drawn.count("<circle") == 1000
    assert "and 3 more" in words(drawn)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["card_testing.cep", "--format", "dot", "-i", "events.jsonl"], "--format dot draws automata"),
        (["events.jsonl"], "error[E0653]: `events.jsonl` has a line that is no match: line 1\n"),
        (["events.csv"], "error[E0653]: `events.csv` has a line that is no match: line 2\n"),
        (["damaged.csv"], "error[E0653]: `damaged.csv` has a line that is no match\n"),
        (["nothing.parquet"], "error[E0653]: `nothing.parquet` cannot be read: "),
        (["nothing.jsonl"], "error[E0653]: `nothing.jsonl` cannot be read: No such file or directory\n"),
        (
            ["card_testing.cep", "-i", "events.jsonl", "--key", "c9"],
            "error[E0898]: no event has",
        ),
        (["card_testing.cep", "-i", "events.jsonl", "--only", "a", "--only", "b"], "write one --only"),
    ],
)
def test_what_cannot_be_drawn_is_said(folder: Path, arguments: list[str], says: str) -> None:
    Path("events.csv").write_text("card,amount\nc1,5\n")
    Path("damaged.csv").write_text('rule,match_id,match_start,match_end\na,1,"2024-05-01"x,2\n')
    result = plot(*arguments)
    assert result.exit_code in (1, 2)
    assert says in result.stderr


def test_names_with_special_characters_are_written_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text(
        '{"rule": "a<b", "k": "x&\\"y", "match_id": "1", "match_start": "2024-05-01T10:00:00Z", '
        '"match_end": "2024-05-01T10:00:00.250Z", "says": "<script>"}\n'
    )
    shown = words(plot(str(tmp_path / "m.jsonl")).stdout)
    assert 'a<b, x&"y' in shown
    assert "says <script>" in shown


def test_a_missing_file_of_matches_is_called_missing(folder: Path) -> None:
    for name in ("none.jsonl", "none.parquet"):
        assert f"`{name}` cannot be read: No such file or directory\n" in plot(name).output


A_MATCH = {
    "rule": "r",
    "k": "a",
    "match_id": "1",
    "match_start": "2024-05-01T10:00:00Z",
    "match_end": "2024-05-01T10:01:00Z",
}


@pytest.mark.parametrize(
    "odd",
    [
        {"match_start": "soon"},
        {"match_start": 5},
        {"match_end": None},
        {"match_end": "9999-12-31T23:59:59-23:59"},
        {"match_end": ["2024-05-01T10:01:00Z"]},
        {"rule": 5},
        {"rule": None},
        {"match_id": ["1"]},
    ],
)
@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_line_that_only_looks_like_a_match_is_named(
    tmp_path: Path, odd: dict[str, Any], ending: str
) -> None:
    file = tmp_path / f"m.{ending}"
    if ending == "jsonl":
        file.write_text(f"{json.dumps(A_MATCH)}\n\n{json.dumps({**A_MATCH, **odd})}\n")
    else:
        pq.write_table(pa.Table.from_pylist([{**A_MATCH, **odd}]), file)
    result = plot(str(file))
    assert result.exit_code == 1
    line = 3 if ending == "jsonl" else 1
    assert f"error[E0653]: `{file}` has a line that is no match: line {line}\n" in result.stderr


@pytest.mark.parametrize("text", ["[" * 100_000, "nothing", "[]", "5", '{"rule": "r"}'])
def test_a_line_that_is_no_row_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.jsonl").write_text(f"{json.dumps(A_MATCH)}\n{text}\n")
    assert "has a line that is no match: line 2\n" in plot(str(tmp_path / "m.jsonl")).stderr


def test_an_event_that_is_nested_too_deep_is_no_event(tmp_path: Path) -> None:
    row = {**A_MATCH, "event_number": "1", "event_variable": "a", "event": "[" * 100_000}
    (tmp_path / "m.csv").write_text(f"{','.join(row)}\n{','.join(row.values())}\n")
    assert plot(str(tmp_path / "m.csv")).exit_code == 0


def test_measures_with_the_names_of_the_columns_of_events_are_measures(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text(json.dumps({**A_MATCH, "event": "login", "event_number": "x"}) + "\n")
    assert "event login, event_number x" in words(plot(str(tmp_path / "m.jsonl")).stdout)


def test_an_event_without_a_time_has_no_mark_and_each_stream_has_its_own_column_of_time(
    tmp_path: Path,
) -> None:
    start, end = A_MATCH["match_start"], A_MATCH["match_end"]
    events = [{"at": start, "x": 1}, {"x": 2}, {"at": None}, {"on": end, "x": 3}]
    rows = [
        {**A_MATCH, "event_number": number, "event_variable": f"v{number}", "event": event}
        for number, event in enumerate(events, 1)
    ]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    marks = about(plot(str(tmp_path / "m.jsonl")).stdout)[1:]
    assert [mark.split()[0] for mark in marks] == ["v1", "v4"]


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_key_with_a_sign_that_ends_lines_elsewhere_and_a_byte_order_mark_are_read(
    folder: Path, ending: str, mark: str
) -> None:
    events, key = Path("events.jsonl").read_text(), "a\x85b\u2028c"
    Path("events.jsonl").write_text(events.replace('"c1"', json.dumps(key)))
    cep_prints(f"match card_testing.cep --input events.jsonl --output m.{ending} --quiet")
    Path(f"m.{ending}").write_text(mark + Path(f"m.{ending}").read_text(), newline="")
    drawn = plot(f"m.{ending}")
    assert drawn.exit_code == 0, drawn.stderr
    assert words(drawn.stdout)[0] == "1 matches of card_testing"
    assert f"card_testing, {key}" in drawn.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["card_testing.cep", "--key", "c1"], "are for a time line: write --input FILE"),
        (["card_testing.cep", "--input-format", "json"], "are for a time line: write --input FILE"),
        (["m.jsonl", "-i", "events.jsonl"], "a file of matches needs none"),
        (["m.jsonl", "--input-format", "json"], "a file of matches needs none"),
        (["m.jsonl", "--set", "small=4"], "a file of matches needs none"),
        (["m.jsonl", "--streams", "nope.yaml"], "a file of matches needs none"),
        (["m.jsonl", "--only", "nope"], "--only nope: the matches are of r\n"),
    ],
)
def test_an_option_that_would_be_ignored_is_wrong_usage(
    folder: Path, arguments: list[str], says: str
) -> None:
    Path("m.jsonl").write_text(json.dumps(A_MATCH) + "\n")
    result = plot(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr
