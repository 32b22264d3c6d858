"""One declaration: the fields of records, and what the compiler's columns become in the packed rule."""

from __future__ import annotations

import ast
import gc
import importlib
from pathlib import Path

import numpy as np
import pytest

import cep.engine
from cep.compiler.compile import compile_sources
from cep.engine.kernels import layout as at
from cep.engine.matching import packed_rule
from cep.engine.matching.packed_rule import pack_rule, packed_rules
from cep.errors import Source
from cep.program.opcodes import Mode
from cep.program.program import Program
from cep.program.records import COLUMNS, RECORDS, SCALARS, Kind, RuleTables
from cep.schema.stream import Field, Stream

STREAM = Stream("s", (Field("k", "string"), Field("ts", "timestamp"), Field("x", "double")), "ts")
RULE = """RULE r FROM s PARTITION BY k PATTERN !n a ->[<= 5 SECONDS] b++ (c -> !d -> e) WITHIN 5 MINUTES
DEFINE n AS x = 9, a AS x < 1, b AS x > a.x, c AS x = 2, d AS x = 3, e AS x > AVG(b.x)
MEASURES e.x AS x, AVG(b.x) AS mean"""


@pytest.fixture(scope="module")
def program() -> Program:
    (program,) = compile_sources([Source("rules", RULE)], {"s": STREAM}).programs
    return program


def test_every_column_is_declared_with_its_field() -> None:
    assert tuple(COLUMNS) == RuleTables._fields
    for name, field in COLUMNS.items():
        assert name.startswith(f"{field.record}_") or field.kind is Kind.LIST, name
        has_field = field.name in RECORDS[field.record].places
        assert has_field or field.kind in (Kind.ROWS, Kind.ENCODED), name
        assert (field.to in RECORDS) is (field.kind in (Kind.LIST, Kind.SHARED_LIST, Kind.REFERENCE)), name


def test_fields_of_a_record_do_not_overlap() -> None:
    for name, record in RECORDS.items():
        sizes = dict.fromkeys(record.places, 1)
        sizes |= {
            field.name: 2
            for field in COLUMNS.values()
            if field.record == name and field.kind in (Kind.LIST, Kind.SHARED_LIST)
        }
        taken = [place + part for called, place in record.places.items() for part in range(sizes[called])]
        assert sorted(taken) == list(range(len(taken)))
        assert len(taken) <= record.width


def test_a_states_number_becomes_its_address_by_a_shift() -> None:
    assert RECORDS["state"].width & (RECORDS["state"].width - 1) == 0
    assert len(SCALARS) == at.N_SCALARS


def test_the_names_of_kernels_follow_from_the_records() -> None:
    assert [getattr(at, name.upper()) for name in SCALARS] == list(range(len(SCALARS)))
    assert RECORDS["state"].places["mode"] == at.STATE_MODE
    assert RECORDS["look_behind"].places["events"] == at.LOOK_BEHIND_EVENTS
    assert RECORDS["take"].width == at.TAKE_WIDTH
    with pytest.raises(
        AttributeError, match=r"^module 'cep[.]engine[.]kernels[.]layout' has no attribute 'STATE_COLOUR'$"
    ):
        _ = at.STATE_COLOUR


@pytest.mark.parametrize(
    "path", sorted(Path(cep.engine.__file__).parent.rglob("*.py")), ids=lambda path: path.name
)
def test_every_name_of_the_layout_that_is_used_is_there(path: Path) -> None:
    tree = ast.parse(path.read_text())
    layouts = [
        importlib.import_module(f"{node.module}.{alias.name}")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == "at"
    ]
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="at"), attr=name):
                assert hasattr(layouts[0], name), f"line {node.lineno}: {name}"


def test_the_packed_rule_has_every_column(program: Program) -> None:
    """Follow the addresses from the states on, and find what the compiler wrote."""
    (rule,) = program.rules
    tables, packed = rule.tables, pack_rule(program, rule).tolist()
    variables = packed[at.VARIABLES]

    def listed(address: int, width: int) -> range:
        return range(packed[address], packed[address + at.END], width)

    def variable(address: int) -> int:
        """Return the number of the variable that a field refers to."""
        number, rest = divmod(int(packed[address]) - int(variables), at.VARIABLE_WIDTH)
        assert rest == 0
        return number

    states = [at.N_SCALARS + at.STATE_WIDTH * number for number in range(len(tables.state_mode))]
    assert [packed[place + at.STATE_MODE] for place in states] == tables.state_mode.tolist()
    assert int(Mode.STRICT) in tables.state_mode
    assert [packed[place + at.STATE_HIGH] for place in states] == tables.state_high.tolist()
    assert 5_000_000 in tables.state_high
    masks = [packed[place + at.STATE_TRIGGER_MASK] for place in states]
    assert masks == tables.state_trigger_mask.view(np.int64).tolist()
    takes = [take for place in states for take in listed(place + at.STATE_TAKES, at.TAKE_WIDTH)]
    assert [variable(take + at.TAKE_VARIABLE) for take in takes] == tables.take_variable.tolist()
    for take, row in zip(takes, tables.take_after, strict=True):
        first, end = tables.after_ptr[row : row + 2]
        afters = [packed[after + at.AFTER_STATE] for after in listed(take + at.TAKE_AFTERS, at.AFTER_WIDTH)]
        assert afters == tables.after_state[first:end].tolist()
    looks = [
        tuple(
            packed[look + place] for place in (at.LOOK_BEHIND_LAST, at.LOOK_BEHIND_US, at.LOOK_BEHIND_EVENTS)
        )
        for take in takes
        for look in listed(take + at.TAKE_LOOK_BEHINDS, at.LOOK_BEHIND_WIDTH)
    ]
    columns = (tables.look_behind_last, tables.look_behind_us, tables.look_behind_events)
    assert looks == list(zip(*(column.tolist() for column in columns), strict=True))
    assert len(looks) > 0
    exclusions = [
        exclusion
        for owners, width in ((states, at.STATE_EXCLUSIONS), (takes, at.TAKE_EXCLUSIONS))
        for owner in owners
        for exclusion in listed(owner + width, at.EXCLUSION_WIDTH)
    ]
    excluded = [variable(exclusion + at.EXCLUSION_VARIABLE) for exclusion in exclusions]
    assert excluded == tables.exclusion_variable.tolist()
    assert len(excluded) > 0
    assert {packed[exclusion + at.EXCLUSION_RELEASED_BY] for exclusion in exclusions} == {at.NONE}
    of_variables = [variables + number * at.VARIABLE_WIDTH for number in range(len(tables.variable_mask))]
    hashes = [packed[place + at.VARIABLE_HASH] for place in of_variables]
    assert hashes == tables.variable_hash.view(np.int64).tolist()
    n_updates = [len(listed(place + at.VARIABLE_UPDATES, at.UPDATE_WIDTH)) for place in of_variables]
    assert n_updates == np.diff(tables.update_ptr).tolist()
    assert packed[packed[at.LAST_VARIABLES] : packed[at.LAST_VARIABLES] + 1] == [
        of_variables[int(number)] for number in tables.last_variable
    ]


def test_rules_are_packed_once_while_their_program_exists() -> None:
    (program,) = compile_sources([Source("rules", RULE)], {"s": STREAM}).programs
    first, second = packed_rules(program), packed_rules(program)
    assert all(one is other for one, other in zip(first, second, strict=True))
    np.testing.assert_array_equal(first[0], pack_rule(program, program.rules[0]))
    number = id(program)
    assert number in packed_rule._KNOWN
    del program
    gc.collect()
    assert number not in packed_rule._KNOWN
