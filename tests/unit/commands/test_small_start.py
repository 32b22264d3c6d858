"""What a small run leaves out at its start is not missed."""

from __future__ import annotations

import subprocess
import sys

CODE = """
from cep.commands.small_start import start_small

start_small()
import pyarrow.compute as pc

import numpy as np
import pyarrow as pa

assert pa.array(np.arange(2)).to_pylist() == [0, 1]
assert pa.array(np.ma.masked_array([1, 2], [False, True])).to_pylist() == [1, None]
assert pc.equal([1, 2], 2).to_pylist() == [False, True] and pc.round(1.25, ndigits=1).as_py() == 1.2
"""


def test_functions_of_arrow_work_as_ever() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
