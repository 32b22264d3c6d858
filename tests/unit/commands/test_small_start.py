"""What a small run leaves out at its start is not missed."""

from __future__ import annotations

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
assert pa.array(np.ma.masked_array([1, 2], [False, True])).to_pylist() == [1, None]
import numpy._core._add_newdocs
import pyparsing

assert np.add.reduce([1, 2]) == 3 and pyparsing.Word("ab").parse_string("abba").as_list() == ["abba"]
assert type(pyparsing.core_builtin_exprs) is list
assert pc.equal([1, 2], 2).to_pylist() == [False, True] and pc.round(1.25, ndigits=1).as_py() == 1.2
"""


def test_dataclasses_and_functions_of_arrow_work_as_ever() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
