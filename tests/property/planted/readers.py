"""Faults of readers of files."""

from __future__ import annotations

from tests.property.planted.fault import Fault

_JSON, _READERS = "cep/formats/text/json_lines.py", "tests.property.readers"
_JSON_KERNEL = "cep/formats/text/json/kernel.py"

FAULTS = (
    Fault(
        "-0 has no sign in few lines",
        _JSON,
        "return _MinusZero()",
        "return 0",
        _READERS,
    ),
    Fault(
        "Arrow's own numbers are read",
        _JSON,
        'or (b"N" in block and b"-NaN" in block)',
        "",
        _READERS,
    ),
    Fault(
        "among many lines there is no limit to nesting",
        _JSON,
        "if n_opened - len(lines) >= MAX_NESTING:",
        "if False:",
        _READERS,
    ),
    Fault(
        "whole numbers beside fractions are not exact",
        _JSON,
        "is_event &= ~_inexact(values)",
        "pass",
        _READERS,
    ),
    Fault(
        "a line out of place stays there",
        _JSON,
        "if (np.diff(rows) < 0).any():",
        "if False:",
        _READERS,
    ),
    Fault(
        "of a name that stands twice the first value counts in the kernel of JSON lines",
        _JSON_KERNEL,
        "return REFUSED, inside  # twice in an object",
        "return skip_value(data, at, names.is_list), inside",
        _READERS,
    ),
    Fault(
        "the kernel of JSON lines keeps values of a line that it leaves",
        _JSON_KERNEL,
        "columns.state[column, row] = ABSENT",
        "pass",
        _READERS,
    ),
    Fault(
        "the kernel of JSON lines takes halves of surrogate pairs",
        "cep/formats/text/json/scan.py",
        "if code < 0 or 0xD800 <= code <= 0xDFFF:",
        "if code < 0:",
        _READERS,
    ),
    Fault(
        "the kernel of JSON lines takes two objects of a line for one",
        _JSON_KERNEL,
        "return is_end(data, at, end)",
        "return True",
        _READERS,
    ),
    Fault(
        "Arrow's year 0 is a year",
        "cep/schema/time_values.py",
        "is_sound = _are_within(values, FIRST_US + 2 * _DAY_US, END_US)",
        "is_sound = True",
        _READERS,
    ),
    Fault(
        "a byte order mark inside a file is dropped",
        "cep/formats/text/csv_lines.py",
        "block = _BOM + block",
        "pass",
        _READERS,
    ),
    Fault(
        "a record that goes over two blocks is cut",
        "cep/formats/text/csv_lines.py",
        "if n_lines == 0 and not is_last:",
        "if False:",
        _READERS,
    ),
    Fault(
        "text of Parquet is not checked",
        "cep/schema/arrow_values.py",
        "bad[row] = value is not None and not is_utf8(value)",
        "pass",
        _READERS,
    ),
    Fault(
        "times of Parquet overflow",
        "cep/schema/time_values.py",
        "bad = ~((plain >= low) & (plain < high))",
        "bad = plain != plain",
        _READERS,
    ),
    Fault(
        "a reason shows what the line has",
        "cep/diagnostics/safe_text.py",
        "return for_cell(text if",
        "return (text if",
        _READERS,
    ),
)
