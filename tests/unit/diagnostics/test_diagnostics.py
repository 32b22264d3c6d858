from __future__ import annotations

import traceback

from cep.diagnostics.diagnostic import in_order, render, to_json
from cep.errors import Diagnostic, RuleError, Source, Span


def shown(text: str, start: int, end: int, label: str = "here", help: str = "") -> str:  # noqa: A002
    return render([Diagnostic("E0101", "a fact", Source("rules/x.cep", text), Span(start, end), label, help)])


def test_the_place_is_quoted_with_a_caret_and_help() -> None:
    text = "one\ntwo three\n"
    assert shown(text, 8, 13, help="do this\nand that") == (
        "error[E0101]: a fact\n"
        "  --> rules/x.cep:2:5\n"
        "   |\n"
        " 2 | two three\n"
        "   |     ^^^^^ here\n"
        "   |\n"
        "help: do this\n"
        "      and that"
    )


def test_the_gutter_grows_with_the_line_number() -> None:
    text = "\n" * 99 + "word"
    assert shown(text, 99, 103).splitlines()[1:] == [
        "    --> rules/x.cep:100:1",
        "     |",
        " 100 | word",
        "     | ^^^^ here",
    ]


def test_tabs_and_wide_characters_do_not_move_the_caret() -> None:
    text = "\tx = '日本' y"
    line, carets = shown(text, text.index("y"), len(text)).splitlines()[3:5]
    assert line == " 1 |     x = '日本' y"
    assert carets.index("^") == line.index("y") + 2  # two characters take two columns each


def test_a_place_over_several_lines_is_marked_to_the_end_of_its_first_line() -> None:
    assert shown("a (b\nc\nd) e", 2, 9).splitlines()[3:] == [" 1 | a (b", "   |   ^^ here (up to line 3)"]


def test_a_place_at_the_end_of_the_text_has_one_caret() -> None:
    assert shown("a ->", 4, 4).splitlines()[3:] == [" 1 | a ->", "   |     ^ here"]
    assert shown("", 0, 0).splitlines()[3:] == [" 1 |", "   | ^ here"]


def test_windows_line_ends_are_not_shown() -> None:
    assert shown("ab\r\ncd\r\n", 4, 6).splitlines()[3] == " 2 | cd"


def test_a_long_line_is_cut_around_the_place() -> None:
    text = "x" * 500 + "HERE" + "y" * 500
    line, carets = shown(text, 500, 504).splitlines()[3:5]
    assert len(line) < 180
    assert line[carets.index("^") : carets.index("^") + 4] == "HERE"
    assert line.startswith(" 1 | ...x")
    assert line.endswith("y...")


def test_control_characters_of_a_file_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in shown("a \x1b[31m b", 0, 1)


def test_color_marks_the_parts_and_changes_no_letter() -> None:
    problem = Diagnostic("W0501", "a fact", Source("x", "abc"), Span(0, 1), "here", "help")
    colored = render([problem], color=True)
    assert "\033[1;33mwarning[W0501]" in colored
    plain = colored
    for style in ("\033[0m", "\033[1m", "\033[1;33m", "\033[34m", "\033[36m"):
        plain = plain.replace(style, "")
    assert plain == render([problem])


def test_a_problem_without_a_place_has_no_excerpt() -> None:
    assert render([Diagnostic("E0107", "a fact", Source("x.cep", ""))]) == "error[E0107]: a fact\n  --> x.cep"
    assert render([Diagnostic("E0904", "a fact", help="do this")]) == "error[E0904]: a fact\nhelp: do this"


def test_json_has_places_from_one_with_an_exclusive_end() -> None:
    source = Source("x.cep", "one\ntwo")
    problem = Diagnostic("E0101", "a fact", source, Span(4, 7), "here", "do this")
    assert to_json([problem, Diagnostic("W0501", "no place")]) == [
        {
            "code": "E0101",
            "severity": "error",
            "title": "a fact",
            "label": "here",
            "help": "do this",
            "file": "x.cep",
            "line": 2,
            "column": 1,
            "end_line": 2,
            "end_column": 4,
        },
        {
            "code": "W0501",
            "severity": "warning",
            "title": "no place",
            "label": "",
            "help": "",
            "file": None,
            "line": None,
            "column": None,
            "end_line": None,
            "end_column": None,
        },
    ]


def test_problems_are_sorted_by_file_and_place() -> None:
    first, second = Source("a", "xy"), Source("b", "xy")
    problems = [
        Diagnostic("E0102", "t", second, Span(0, 1)),
        Diagnostic("E0101", "t", first, Span(1, 2)),
        Diagnostic("E0103", "t", first, Span(0, 1)),
    ]
    assert [problem.code for problem in in_order(problems)] == ["E0103", "E0101", "E0102"]


def test_the_text_of_a_rule_error_shows_every_problem_with_its_place_and_ends_a_traceback() -> None:
    source = Source("rules/x.cep", "one\ntwo three\n")
    error = RuleError(
        [
            Diagnostic("E0203", "a second fact", source, Span(8, 13), "there", "do that"),
            Diagnostic("W0501", "a first fact", source, Span(0, 3), "here"),
            Diagnostic("E0611", "a fact without a place"),
        ]
    )
    assert str(error) == (
        "error[E0611]: a fact without a place\n"
        "\n"
        "warning[W0501]: a first fact\n"
        "  --> rules/x.cep:1:1\n"
        "   |\n"
        " 1 | one\n"
        "   | ^^^ here\n"
        "\n"
        "error[E0203]: a second fact\n"
        "  --> rules/x.cep:2:5\n"
        "   |\n"
        " 2 | two three\n"
        "   |     ^^^^^ there\n"
        "   |\n"
        "help: do that"
    )
    assert (error.code, error.help) == ("E0203", "do that")
    assert traceback.format_exception_only(error) == [f"cep.errors.RuleError: {error}\n"]
