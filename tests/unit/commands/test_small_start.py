"""What a small run leaves out at its start is not missed."""

from __future__ import annotations

import json
import subprocess
import sys

CODE = """
from cep.commands.small_start import start_small

start_small()
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, order=True)
class Place:
    line: int
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Named(Place):
    name: str = "n"

    def __repr__(self):
        return "own"


@dataclass
class Counter:
    n: int = 0


assert Place(1, "a") == Place(1) and hash(Place(1, "a")) == hash(Place(1)) and Place(1) < Place(2)
assert repr(Place(1)) == "Place(line=1, text='')" and repr(Named(1)) == "own"
assert Named(1, name="m") != Named(1) and Named(2, "t").text == "t" and {Named(1), Named(1)} == {Named(1)}
try:
    Place(1).line = 2
except AttributeError as error:
    assert str(error) == "cannot assign to field 'line'"
else:
    raise AssertionError
counter = Counter()
counter.n += 1
assert counter == Counter(1) and Counter.__hash__ is None
import pyarrow.compute as pc

import numpy as np
import pyarrow as pa

assert pa.array(np.arange(2)).to_pylist() == [0, 1]
assert not np.ma.is_masked(np.arange(2)) and np.unique([2, 1, 2]).tolist() == [1, 2]
assert np.ma.is_masked(np.ma.masked_array([1], [True])) and not np.ma.is_masked(np.ma.masked_array([1]))
assert pa.array(np.ma.masked_array([1, 2], [False, True])).to_pylist() == [1, None]
import numpy._core._add_newdocs
import pyparsing

assert np.add.reduce([1, 2]) == 3 and pyparsing.Word("ab").parse_string("abba").as_list() == ["abba"]
assert type(pyparsing.core_builtin_exprs) is list
from pyparsing.helpers import common_html_entity, infix_notation

assert common_html_entity.parse_string("&lt;").as_list() == ["&lt;"]
assert pc.equal([1, 2], 2).to_pylist() == [False, True] and pc.round(1.25, ndigits=1).as_py() == 1.2
assert not hasattr(pc, "no_function")
from numpy.typing import ArrayLike, NDArray

assert NDArray[np.int64] and ArrayLike is not list
import yaml

assert yaml.load("a: [1]", Loader=yaml.SafeLoader) == {"a": [1]} and yaml.CSafeLoader
try:
    yaml.load("a: \\x01", Loader=yaml.SafeLoader)
except yaml.reader.ReaderError as error:
    assert error.position == 3
else:
    raise AssertionError
import re
import sys

import llvmlite.binding as llvm

assert re.compile("a").match("a") and "llvmlite.ir" not in sys.modules
function = llvm.parse_assembly("define i32 @f() {\\n  ret i32 1\\n}").get_function("f")
from llvmlite import ir

assert function.global_value_type.as_ir(ir.Context()) == ir.FunctionType(ir.IntType(32), ())
"""

OF_ARROW = """
import inspect, json
import pyarrow.compute as pc

names = set(json.loads(NAMES)) if NAMES else {name for name in dir(pc) if callable(getattr(pc, name))}
found = {name: str(inspect.signature(getattr(pc, name))) for name in sorted(names) if name.islower()}
print(json.dumps(found))
"""

OF_OTHERS = """
import sys

from cep.commands.small_start import start_small

start_small()
exec("import pyarrow as pa; pa.array([object()][:0]); pa.array([1.5])", {"__name__": "cep.formats"})
assert not {"pandas", "dateutil"} & {*sys.modules}
import numpy as np
from numpy.ma import MaskedArray

assert not isinstance(np.arange(2), MaskedArray) and isinstance(np.ma.masked_array([1]), MaskedArray)
import dateutil.relativedelta
import dateutil.tz
import pandas as pd

import pyarrow as pa

assert pa.array(pd.Series([1.5, float("nan")])).null_count == 1
assert pa.Table.from_pandas(pd.DataFrame({"a": [1]})).to_pandas().a.tolist() == [1]
assert pa.array([dateutil.relativedelta.relativedelta(days=1)]).type == pa.month_day_nano_interval()
import botocore.parsers
from pyparsing import pyparsing_common, pyparsing_test

assert pyparsing_common.integer.parse_string("7").as_list() == [7]
assert pyparsing_test.reset_pyparsing_context
import pyparsing.common

assert pyparsing.common.pyparsing_common.hex_integer
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout


def test_each_function_of_arrow_is_there_when_it_is_asked_for() -> None:
    known = run(f"NAMES = ''{OF_ARROW}")
    small = "from cep.commands.small_start import start_small; start_small()\n"
    late = "import pyarrow.compute as pc; assert not {'equal', 'and_', 'sum'} & {*vars(pc)}\n"
    assert run(f"{small}{late}NAMES = {known!r}{OF_ARROW}") == known
    names = {*json.loads(known)}
    assert {"equal", "and_", "or_", "cast", "take"} <= names
    assert ("utf8_zfill" in names) == ("utf8_zero_fill" in names)  # pyarrow 18 has neither


def test_dataclasses_and_functions_of_arrow_work_as_ever() -> None:
    assert run(CODE) == ""


def test_other_packages_find_what_a_small_run_leaves_out() -> None:
    assert run(OF_OTHERS) == ""
