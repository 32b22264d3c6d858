"""What an editor shows, as functions of texts."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from random import Random

import pytest

from cep.compiler.aggregates import AGGREGATES
from cep.compiler.typing.functions import FUNCTION_NAMES
from cep.editor.assist import Completion, completions, hover
from cep.editor.functions import HELP
from cep.editor.keywords import KEYWORDS
from cep.editor.names import places
from cep.editor.positions import Positions
from cep.editor.project import dependents, problems, surroundings
from cep.editor.renaming import Edit, RenameError, applied, rename
from cep.errors import Source
from cep.language.grammar import Lexeme, tokens
from cep.program.window_functions import WINDOW_FUNCTIONS
from cep.rulebook import check_rules
from tests.pages import DOCS
from tests.property.hostile_text import draw
from tests.unit.editor.projects import READER, RULE, STREAMS, TESTS, project

ROOT = Path(__file__).parents[3]


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    return project(tmp_path)


def labels(file: Path, text: str) -> list[str]:
    """Return the labels of the completions at the mark `^^` of a text."""
    return [found.label for found in found_at(file, text)]


def found_at(file: Path, text: str) -> tuple[Completion, ...]:
    offset = text.index("^^")
    text = text.replace("^^", "")
    return completions(text, offset, surroundings(file, {file: text}))


def told(file: Path, text: str, word: str) -> str:
    found = hover(text, text.index(word) + 1, surroundings(file, {file: text}))
    return "" if found is None else found[0]


@pytest.mark.parametrize("rules", sorted((ROOT / "rules").rglob("*.cep")), ids=lambda path: path.stem)
def test_each_word_of_a_rule_is_a_name_with_a_place_or_a_word_of_the_language(rules: Path) -> None:
    source = Source(str(rules), rules.read_text())
    found = {place.span.start: place for place in places([source])}
    for start, place in found.items():
        assert source.text[start : place.span.end].strip("`") == place.symbol.text
    tags = set(",".join(re.findall(r"^ *TAGS (.*)", source.text, re.MULTILINE)).replace(" ", "").split(","))
    left = {
        token.text
        for token in tokens(source.text)
        if token.kind is Lexeme.WORD and token.start not in found and token.word not in KEYWORDS
    }
    assert left <= tags


def test_words_of_the_grammar_are_keywords() -> None:
    grammar = (DOCS / "language/grammar.md").read_text()
    blocks = re.findall(r"```ebnf\n(.*?)```", grammar, re.DOTALL)
    words = {word.upper() for block in blocks for word in re.findall(r'"([A-Za-z_]{2,})"', block)}
    assert len(words) > 100
    assert words - KEYWORDS == set()


def test_words_that_the_parser_accepts_are_keywords() -> None:
    texts = "".join(path.read_text() for path in (ROOT / "cep/language").rglob("*.py"))
    calls = re.findall(r"(?:accept|expect)_word\(([^)]*)\)", texts)
    words = {word for call in calls for word in re.findall(r'"([A-Z]+)"', call)}
    assert len(words) > 30
    assert words - KEYWORDS == set()


def test_each_function_has_a_help_whose_call_the_grammar_names() -> None:
    assert set(HELP) - {"CAST", "TRY_CAST"} == {*FUNCTION_NAMES, *AGGREGATES, *WINDOW_FUNCTIONS}
    grammar = (DOCS / "language/grammar.md").read_text()
    others = {"CAST", "TRY_CAST", *WINDOW_FUNCTIONS}
    missing = {name for name, about in HELP.items() if f"`{about.call}`" not in grammar}
    assert missing <= others


def test_places_of_editors_count_units_of_utf_16() -> None:
    positions = Positions("a\U0001f600b\nc")
    assert [positions.place(offset) for offset in range(5)] == [(0, 0), (0, 1), (0, 3), (0, 4), (1, 0)]
    assert [positions.offset(0, column) for column in (0, 1, 3, 4, 99)] == [0, 1, 2, 3, 3]
    assert positions.offset(9, 0) == 5


def test_columns_steps_functions_and_parameters_follow_in_a_condition(file: Path) -> None:
    found = labels(file, RULE.replace("amount < small", "^^"))
    assert {"amount", "probe", "cashout", "small", "AVG", "AND"} <= set(found)
    assert "payments" not in found


def test_behind_the_dot_of_a_step_are_the_columns_of_its_stream(file: Path) -> None:
    text = RULE.replace("FROM payments", "FROM payments, cards").replace("probe   AS", "probe ON cards AS")
    assert labels(file, text.replace("AVG(probe.amount)", "AVG(probe.^^")) == ["card", "ts", "country"]
    assert labels(file, RULE.replace("AVG(probe.amount)", "AVG(probe.am^^")) == [
        "card",
        "ts",
        "amount",
        "kind",
    ]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("FROM ^^", ["payments", "cards"]),
        ("FROM payments\nPARTITION BY ^^", ["card", "ts", "amount", "kind"]),
        ("FROM payments\nPARTITION BY card\nPATTERN a -> b\nWITHIN 10 ^^", ["DAYS", "EVENTS", "HOURS"]),
        ("FROM payments\nSEVERITY ^^", ["info", "low"]),
    ],
)
def test_what_may_follow_depends_on_the_clause(file: Path, written: str, expected: list[str]) -> None:
    assert labels(file, f"RULE x\n{written}")[: len(expected)] == expected


def test_parameters_follow_where_a_number_or_a_duration_is_due(file: Path) -> None:
    text = RULE.replace("small = 5", "small = 5, form = 'a%'")
    for clause, other in (
        ("WITHIN wait", "WITHIN ^^"),
        ("{least,}", "{^^"),
        ("WITHIN wait", "SUPPRESS FOR ^^"),
    ):
        found = labels(file, text.replace(clause, other))
        assert {"least", "wait"} <= set(found)
        assert "form" not in found
    steps = [one.label for one in found_at(file, RULE.replace("amount < small", "^^")) if one.kind == "step"]
    assert steps == ["probe", "cashout"]
    assert told(file, RULE, "wait\n") == "```cep\nwait = 10 MINUTES\n```\nparameter of `drain`"


def test_clauses_that_a_rule_has_are_not_offered_again(file: Path) -> None:
    found = labels(file, "RULE x\nFROM payments\n^^")
    assert "PATTERN" in found
    assert "FROM" not in found
    assert labels(file, "^^") == ["RULE", "VIEW"]


def test_nothing_is_offered_inside_a_text_or_a_comment(file: Path) -> None:
    assert labels(file, RULE.replace("amount < small", "kind = 'ca^^'")) == []
    assert labels(file, "-- a comm^^ent\n" + RULE) == []


def test_a_word_is_explained_by_its_type_and_its_meaning(file: Path) -> None:
    assert told(file, RULE, "amount <") == "```\namount: double\n```\ncolumn of payments; DOUBLE in rules"
    assert told(file, RULE, "small,") == "```cep\nsmall = 5\n```\nparameter of `drain`"
    assert told(file, RULE, "probes") == "```cep\nprobes: BIGINT\n```\nmeasure of `drain`: `COUNT(probe.*)`"
    assert (
        told(file, RULE, "cashout\n") == "step of `drain`: an event for which its condition in DEFINE is TRUE"
    )
    assert told(file, RULE, "payments") == "stream `payments`: card, ts, amount, kind"
    assert told(file, RULE, "10 ") == ""


def test_a_profile_says_which_values_a_column_has(file: Path) -> None:
    events = file.with_name("events.csv")
    events.write_text("card,ts,amount,kind\nc1,2024-01-01,5,buy\nc1,2024-01-02,7,buy\nc1,2024-01-03,9,cash\n")
    from cep.formats.files import read_events
    from cep.profiles.measuring import measured
    from cep.profiles.profile import write_profile
    from cep.settings.schema_file import load_streams

    streams = file.with_name("streams.yaml")
    stream = load_streams(streams)["payments"]
    write_profile(streams, measured(stream, read_events(str(events), stream)))
    assert told(file, RULE.replace("small,", "small AND kind = 'x',"), "kind").endswith(
        "values: buy (2), cash (1)"
    )


def test_problems_are_those_of_cep_check(file: Path) -> None:
    wrong = RULE.replace("cashout.amount AS", "cashout.amonut AS").replace("10 MINUTES", "10 MONTHS")
    file.write_text(wrong)
    expected = [(one.code, one.span, one.help) for one in check_rules([file]).problems]
    assert len(expected) >= 1
    file.write_text(RULE)
    found = problems(file, {file: wrong})[file]
    assert [(one.code, one.span, one.help) for one in found] == expected


def test_a_rule_that_reads_matches_of_another_file_is_checked_with_it(file: Path) -> None:
    reader = file.with_name("twice.cep")
    assert problems(reader, {}) == {reader: ()}
    wrong = problems(reader, {file: RULE.replace("AS loss", "AS lost")})[reader]
    assert {one.code for one in wrong} == {"E0203"}


def test_a_change_of_the_streams_file_is_seen_before_it_is_saved(file: Path) -> None:
    streams = file.with_name("streams.yaml")
    opened = {streams: STREAMS.replace("amount: double", "sum: double"), file: RULE}
    assert dependents(streams, opened) == (streams, file)
    assert {one.code for one in problems(file, opened)[file]} == {"E0203"}
    broken = problems(streams, {streams: STREAMS.replace("double", "duoble")})[streams]
    assert [one.code for one in broken] == ["E0406"]


def test_a_test_file_has_its_problems(file: Path) -> None:
    tests = file.with_name("drain.test.yaml")
    assert problems(tests, {}) == {tests: ()}
    (found,) = problems(tests, {tests: TESTS.replace("loss: 900", "lost: 900")})[tests]
    assert "lost" in found.title


@pytest.mark.parametrize("name", ["small", "least", "wait", "probe", "cashout", "probes", "loss"])
def test_a_name_that_is_renamed_and_renamed_back_leaves_all_files_as_they_were(file: Path, name: str) -> None:
    opened = {each: each.read_text() for each in file.parent.iterdir()}
    before = dict(opened)
    for new in ("other name", name):
        old = name if new != name else "`other name`"
        edits = rename(file, opened[file].index(old) + 1, new, opened)
        sources = {edit.source.name: edit.source for edit in edits}
        for source in sources.values():
            opened[Path(source.name)] = applied(source, [edit for edit in edits if isinstance(edit, Edit)])
        for each, text in opened.items():
            each.write_text(text)
        assert problems(file, opened)[file] == ()
        assert problems(file.with_name("twice.cep"), opened)[file.with_name("twice.cep")] == ()
        assert problems(file.with_name("drain.test.yaml"), opened)[file.with_name("drain.test.yaml")] == ()
    assert opened == before


@pytest.mark.parametrize(
    ("word", "new", "expected"),
    [
        ("payments", "x", "`payments` is a stream, which other files name, too"),
        ("amount", "x", "`amount` is a column"),
        ("probe", "cashout", "`cashout` is already a step of `drain`"),
        ("small", "", "`` is no name"),
        ("small", "amount", "`amount` would be an error"),
    ],
)
def test_what_cannot_be_renamed_says_why(file: Path, word: str, new: str, expected: str) -> None:
    with pytest.raises(RenameError) as refused:
        rename(file, RULE.index(word) + 1, new, {})
    assert str(refused.value).startswith(expected)


def test_a_rule_with_a_syntax_error_is_not_renamed(file: Path) -> None:
    wrong = RULE.replace("WITHIN wait", "WITHIN")
    with pytest.raises(RenameError) as refused:
        rename(file, wrong.index("probe") + 1, "x", {file: wrong})
    assert "a rule with a syntax error has to be corrected first" in str(refused.value)


def test_a_measure_is_known_to_the_reader_of_matches(file: Path) -> None:
    reader = file.with_name("twice.cep")
    edits = rename(reader, READER.index("loss") + 1, "lost", {})
    assert len(edits) == 6


def test_the_first_word_of_a_text_is_completed_before_other_rules_too(file: Path) -> None:
    assert {"RULE", "VIEW"} <= set(labels(file, "RU^^LE twice\nFROM MATCHES OF drain"))
    assert {"RULE", "VIEW"} <= set(labels(file, "-- a comment\nR^^\n" + RULE))


def test_a_name_in_a_file_with_another_ending_has_no_tests(file: Path) -> None:
    other = file.with_name("drain.sql")
    edits = rename(other, RULE.index("loss"), "lost", {other: RULE})
    assert {edit.source.name for edit in edits} >= {str(other)}
    assert not any(edit.source.name.endswith(".test.yaml") for edit in edits)


def test_damaged_texts_are_completed_and_renamed_without_an_exception(file: Path) -> None:
    random = Random(3)
    for _ in range(150):
        text = draw(random).data.decode(errors="replace")[:4000]
        offset = random.randrange(len(text) + 1)
        opened = {file: text}
        around = surroundings(file, opened)
        completions(text, offset, around)
        hover(text, offset, around)
        with contextlib.suppress(RenameError):
            rename(file, offset, random.choice(["lost", "", "RULE", "a b"]), opened)
