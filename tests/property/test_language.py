"""The printed text of a syntax tree gives the same tree, and any text is read or refused with diagnostics."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cep.compiler.analysis.analyze import analyze
from cep.diagnostics.diagnostic import Diagnostic, in_order, render, to_json
from cep.errors import Source, Span
from cep.language import ast
from cep.language.grammar import tokens
from cep.language.parameters import PARTS, parameters_read, with_values
from cep.language.parser import parse
from cep.language.printer import print_rule, print_rules
from cep.program.opcodes import SEVERITIES
from cep.settings.schema_file import load_streams, parse_streams
from tests.deep import n_cases
from tests.golden.errors_cases import FOLDER

GATE = settings(
    max_examples=n_cases(200),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

_AT = Span(0, 0)
_SOURCE = Source("test.cep", "")

_line = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=8)
_names = st.builds(
    lambda text: ast.Name(text, _AT),
    st.sampled_from(
        ["a", "b", "amount", "end", "title", "Within", "two words", "ä_1", "`", "FIRST", "minutes"]
    )
    | _line.filter(bool),
)
_texts = st.builds(lambda text: ast.Text(text, _AT), _line)


def _constant(kind: ast.Kind, values: st.SearchStrategy[object]) -> st.SearchStrategy[ast.Constant]:
    return values.map(lambda value: ast.Constant(kind, value, _AT))  # type: ignore[arg-type]


_integers = _constant(ast.Kind.INTEGER, st.integers(-(1 << 63), (1 << 63) - 1))
_decimals = _constant(ast.Kind.DECIMAL, st.floats(allow_nan=False, allow_infinity=False))
_constants = st.one_of(
    _integers,
    _decimals,
    _constant(ast.Kind.NULL, st.none()),
    _constant(ast.Kind.BOOLEAN, st.booleans()),
    _constant(ast.Kind.TEXT, _line),
    _constant(ast.Kind.TIMESTAMP, st.integers(-(10**15), 10**16)),
    _constant(ast.Kind.INTERVAL, st.integers(0, 10**15)),
)
_columns = st.builds(ast.Column, st.none() | _names, _names, st.just(_AT))
_events = st.builds(ast.Events, _names, st.just(_AT))
_functions = st.sampled_from(["COUNT", "SUM", "ABS", "COALESCE"]).map(lambda text: ast.Name(text, _AT))


_lengths = st.integers(0, 10**15)
_overs = st.one_of(
    st.builds(ast.Over, st.just(ast.OverKind.ALL), st.just(_AT)),
    st.builds(ast.Over, st.sampled_from([ast.OverKind.LAST, ast.OverKind.PREVIOUS]), st.just(_AT), _lengths),
    st.builds(
        lambda kind, length_us, step_us: ast.Over(kind, _AT, length_us, step_us=step_us),
        st.sampled_from([ast.OverKind.LAST, ast.OverKind.PREVIOUS]),
        _lengths,
        _lengths,
    ),
    st.builds(
        lambda kind, count: ast.Over(kind, _AT, count=count),
        st.sampled_from([ast.OverKind.LAST, ast.OverKind.PREVIOUS]),
        st.integers(0, 10**12),
    ),
    st.builds(ast.Over, st.just(ast.OverKind.SESSION), st.just(_AT), _lengths),
    st.builds(
        lambda length_us, offset_us, zone: ast.Over(
            ast.OverKind.TUMBLING, _AT, length_us, None, offset_us, zone
        ),
        _lengths,
        st.none() | _lengths,
        st.none() | _texts,
    ),
)


def _is_no_star(node: ast.Expression) -> bool:
    return not isinstance(node, ast.Events)


def _compound(parts: st.SearchStrategy[ast.Expression]) -> st.SearchStrategy[ast.Expression]:
    at = st.just(_AT)
    count_name = ast.Name("COUNT", _AT)
    count = st.just(ast.Function(ast.Name("COUNT", _AT), (ast.Events(None, _AT),), _AT))
    some = st.lists(parts, min_size=1, max_size=3).map(tuple)
    several = st.lists(parts, min_size=2, max_size=3).map(tuple)
    signs = st.sampled_from(["+", "-", "||", "*", "/", "%", "=", "<>", "<", "<=", ">", ">="])
    junctions = st.builds(ast.Junction, st.sampled_from(["and", "or"]), several, at)
    minus = parts.map(lambda part: ast.Unary("-", part, _AT))
    windowed = st.builds(
        lambda name, args, is_distinct, condition, over: ast.Windowed(
            name, args, is_distinct and args != (ast.Events(None, _AT),), condition, over, _AT
        ),
        _functions,
        some,
        st.booleans(),
        st.none() | parts,
        _overs,
    )
    count_over = st.builds(
        lambda over: ast.Windowed(count_name, (ast.Events(None, _AT),), False, None, over, _AT), _overs
    )
    return st.one_of(
        windowed,
        count_over,
        st.builds(ast.Function, _functions, st.lists(parts, max_size=3).map(tuple), at),
        count,
        minus,
        st.builds(ast.Unary, st.just("not"), parts, at),
        st.builds(ast.Binary, signs, parts, parts, at, at),
        junctions,
        st.builds(ast.Between, parts, parts, parts, st.booleans(), at),
        st.builds(ast.In, parts, st.lists(_constants, min_size=1, max_size=3).map(tuple), st.booleans(), at),
        st.builds(
            ast.In, parts, st.builds(ast.Column, _names, _names, at).map(lambda c: (c,)), st.booleans(), at
        ),
        st.builds(
            lambda part: ast.Function(count_name, (part,), _AT, is_distinct=True), parts.filter(_is_no_star)
        ),
        st.builds(ast.Like, parts, st.sampled_from(["LIKE", "RLIKE"]), _texts, st.booleans(), at),
        st.builds(ast.Cast, parts, st.sampled_from([ast.Name("bigint", _AT), ast.Name("x", _AT)]), at),
        st.builds(ast.Is, parts, st.sampled_from([None, True, False]), st.booleans(), at),
        st.builds(
            ast.Case,
            st.none() | parts,
            st.lists(st.builds(ast.When, parts, parts), min_size=1, max_size=2).map(tuple),
            st.none() | some.map(lambda found: found[0]),
            at,
        ),
    )


_expressions = st.recursive(_constants | _columns | _events, _compound, max_leaves=12)

_joints = st.sampled_from(list(ast.Joint))
_bounds = st.one_of(
    st.just((0, 1)),
    st.just((0, None)),
    st.just((1, None)),
    st.tuples(st.integers(0, 9), st.none() | st.integers(0, 9)),
)


_durations = st.integers(0, 10**15)
_windows = st.builds(ast.Window, _durations, st.booleans(), st.just(_AT))
_bounds_of_matches = _windows | st.builds(ast.EventWindow, st.integers(0, 99), st.just(_AT))
_gaps = st.none() | st.one_of(
    st.builds(ast.Gap, st.sampled_from(["<=", "<", ">=", ">"]), _durations, st.none(), st.just(_AT)),
    st.builds(ast.Gap, st.just(","), _durations, _durations, st.just(_AT)),
)


def _larger(parts: st.SearchStrategy[ast.Pattern]) -> st.SearchStrategy[ast.Pattern]:
    at = st.just(_AT)
    absent = st.lists(_names, min_size=1, max_size=3).map(tuple)
    absences = st.builds(ast.Absence, absent, at, st.none() | _windows)
    steps = st.lists(st.builds(ast.Item, _joints, parts | absences, _gaps), max_size=3)
    groups = st.builds(ast.Group, parts, _bounds_of_matches, at)
    sequences = st.builds(
        lambda first, second, rest: ast.Sequence((ast.Item(ast.Joint.STRICT, first), second, *rest), _AT),
        parts,
        st.builds(ast.Item, _joints, parts, _gaps),
        steps,
    )
    repetitions = st.builds(
        lambda body, bounds, joint, greed, gap, until, distinct: ast.Repetition(
            body,
            bounds[0],
            bounds[1],
            joint,
            greed,
            _AT,
            _AT,
            gap,
            until if bounds[1] is None or bounds[1] > 1 else None,
            distinct,
        ),
        parts,
        _bounds,
        _joints,
        st.sampled_from(ast.Greed),
        _gaps,
        st.none() | _expressions,
        st.none() | _names,
    )
    branches = st.lists(parts, min_size=2, max_size=3).map(lambda found: ast.Alternation(tuple(found), _AT))
    orders = st.builds(
        lambda found, by_arrow: ast.Permutation(
            tuple(found), ast.Joint.NEXT if by_arrow else ast.Joint.STRICT, _AT
        ),
        st.lists(parts, min_size=2, max_size=3),
        st.booleans(),
    )
    anchored = st.builds(ast.Anchored, parts, at)
    withouts = st.builds(ast.Without, parts, absent, at)
    return sequences | branches | orders | repetitions | groups | anchored | withouts


_patterns = st.recursive(st.builds(ast.Step, _names, st.just(_AT)), _larger, max_leaves=8)
_skips = st.one_of(
    st.builds(
        ast.Skip,
        st.sampled_from(
            [ast.SkipTarget.PAST_LAST_EVENT, ast.SkipTarget.TO_NEXT_EVENT, ast.SkipTarget.NO_SKIP]
        ),
        st.none(),
        st.just(_AT),
    ),
    st.builds(
        ast.Skip, st.sampled_from([ast.SkipTarget.TO_FIRST, ast.SkipTarget.TO_LAST]), _names, st.just(_AT)
    ),
)
_columns_of_streams = st.builds(ast.Column, _names, _names, st.just(_AT))
_key_parts = st.builds(
    ast.KeyPart,
    st.builds(ast.Column, st.none(), _names, st.just(_AT)).map(lambda column: (column,))
    | st.lists(_columns_of_streams, min_size=1, max_size=3).map(tuple),
    st.just(_AT),
)
_keys_of_variables = st.lists(_names, max_size=2).map(tuple)
_definitions = st.builds(
    ast.Definition, _names, _expressions, st.none() | _names, _keys_of_variables
) | st.builds(ast.Definition, _names, st.none(), _names, _keys_of_variables)
_subsets = st.builds(ast.Subset, _names, st.lists(_names, min_size=1, max_size=2).map(tuple))
rule_trees = st.builds(
    ast.Rule,
    _names,
    st.none() | _texts,
    st.none() | st.sampled_from(SEVERITIES),
    st.lists(_line, max_size=2).map(tuple),
    st.lists(_names, min_size=1, max_size=2).map(tuple),
    st.lists(_key_parts, min_size=1, max_size=2).map(tuple),
    _patterns,
    st.none() | _bounds_of_matches,
    st.lists(_definitions, max_size=3).map(tuple),
    st.lists(st.builds(ast.Measure, _expressions, _names), max_size=2).map(tuple),
    st.none() | st.sampled_from(list(ast.Mode)),
    st.none() | _skips,
    st.just(_SOURCE),
    st.just(_AT),
    st.builds(
        ast.Report,
        st.none() | st.sampled_from(list(ast.Rows)),
        st.none() | st.just(ast.Timeout(_AT)),
        st.none() | st.builds(ast.Suppression, st.integers(0, 10**15), st.just(_AT)),
        st.none()
        | st.builds(
            ast.RunLimit,
            st.integers(0, 10**17),
            st.none() | st.sampled_from(list(ast.Overflow)),
            st.just(_AT),
        ),
    ),
    st.lists(
        st.builds(ast.Subset, _names, st.lists(_names, min_size=1, max_size=2).map(tuple)), max_size=2
    ).map(tuple),
    st.lists(st.builds(ast.Let, _names, _expressions, st.none() | _names), max_size=2).map(tuple),
    parameters=st.lists(
        st.builds(ast.Parameter, _names, _constants.filter(lambda value: value.kind is not ast.Kind.NULL)),
        max_size=2,
    ).map(tuple),
)


_key_columns = st.builds(lambda name: ast.KeyPart((ast.Column(None, name, _AT),), _AT), _names)
_table_columns = st.builds(ast.Column, st.none() | _names, _names, st.just(_AT))
_pairs = st.builds(ast.JoinPair, _table_columns, st.none() | _table_columns, st.just(_AT))
view_trees = st.builds(
    lambda name, title, tags, table, key, measures, joins, where: ast.Rule(
        *(name, title, None, tags, (table,), key, ast.Step(ast.Name("", _AT), _AT)),
        *(None, (), measures, None, None, _SOURCE, _AT),
        joins=joins,
        where=where,
        is_view=True,
    ),
    _names,
    st.none() | _texts,
    st.lists(_line, max_size=2).map(tuple),
    _names,
    st.lists(_key_columns, min_size=1, max_size=2).map(tuple),
    st.lists(st.builds(ast.Measure, _expressions, _names), min_size=1, max_size=2).map(tuple),
    st.lists(
        st.builds(
            ast.Join,
            _names,
            st.lists(_pairs, min_size=1, max_size=2).map(tuple),
            st.just(_AT),
            st.sampled_from(list(ast.JoinKind)),
        ),
        max_size=2,
    ).map(tuple),
    st.none() | _expressions,
)


@GATE
@given(st.lists(rule_trees | view_trees, min_size=1, max_size=2))
def test_the_printed_text_of_a_rule_gives_the_same_tree(rules: list[ast.Rule]) -> None:
    text = print_rules(rules)
    found, problems = parse(Source("printed.cep", text))
    assert problems == [], render(problems)
    assert found == tuple(rules)
    assert "".join(print_rule(rule) for rule in found).replace("\n", "") == text.replace("\n", "")


def _named(node: Any, found: list[ast.Parameter]) -> Any:
    """Return `node` with a parameter in the place of each constant; the parameters go to `found`."""
    if isinstance(node, tuple):
        return tuple(_named(part, found) for part in node)
    if isinstance(node, ast.Constant) and node.kind is not ast.Kind.NULL:
        found.append(ast.Parameter(ast.Name(f"parameter {len(found)}", _AT), node))
        return ast.Column(None, found[-1].name, _AT)
    if not is_dataclass(node) or isinstance(node, type):
        return node
    return replace(node, **{one.name: _named(getattr(node, one.name), found) for one in fields(node)})


@GATE
@given(rule_trees | view_trees)
def test_a_rule_with_a_parameter_for_each_constant_is_the_rule_with_the_constants(rule: ast.Rule) -> None:
    found: list[ast.Parameter] = []
    plain = replace(rule, parameters=())
    named = replace(plain, **{part: _named(getattr(plain, part), found) for part in PARTS})
    assert with_values(replace(named, parameters=tuple(found))) == replace(plain, parameters=tuple(found))
    assert parameters_read(replace(named, parameters=tuple(found))) == {one.name.text for one in found}


_EXAMPLES = [path.read_text() for path in sorted(FOLDER.iterdir()) if path.suffix in (".cep", ".yaml")]
_PIECES = sorted({token.text for text in _EXAMPLES for token in tokens(text)})


@st.composite
def _damaged(draw: st.DrawFn) -> str:
    """Draw an example with a few pieces changed. It is similar to a rule, so the parser reads far into it."""
    text = draw(st.sampled_from(_EXAMPLES))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 6)))
        text = text[:start] + draw(st.sampled_from(_PIECES) | st.text(max_size=2)) + text[end:]
    return text


@GATE
@given(_damaged() | st.text())
def test_any_text_is_read_or_refused_with_places_inside_it(text: str) -> None:
    rules, problems = parse(Source("test.cep", text))
    _, more = analyze(rules, load_streams(Path(FOLDER) / "streams.yaml"))
    assert rules or problems
    _check_places(text, [*problems, *more])


@GATE
@given(_damaged() | st.text())
def test_any_streams_file_is_read_or_refused_with_places_inside_it(text: str) -> None:
    streams, problems = parse_streams(Source("streams.yaml", text))
    assert streams or problems
    _check_places(text, problems)


def _check_places(text: str, problems: Sequence[Diagnostic]) -> None:
    for problem in problems:
        assert problem.title
        if problem.span is not None:
            assert 0 <= problem.span.start <= problem.span.end <= len(text)
        assert (
            re.search(r"pyparsing|Expected|<class", render([problem]).split("help:")[0].split("-->")[0])
            is None
        )
    assert len(to_json(in_order(problems))) == len(problems)
