r"""CSV lines -> typed events, and the reason for each record that is not an event.

The form is RFC 4180: comma, double quotes, a doubled quote inside quotes; or what the stream declares
(`CsvLayout`). A quoted field may contain line ends, but a record has at most `MAX_RECORD_LINES` lines: the
line of an unclosed quote becomes a dead letter, and the lines below it are read separately. An empty field is
NULL, quoted or not. Columns that the stream does not declare are not examined. See `cep.schema.text_values`
for the accepted forms.

Arrow splits records, but it is lenient with quotes, and an unclosed quote swallows the following lines. So
each line with a quote is first checked with a regular expression.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from cep.arrays import Mask
from cep.errors import InputError
from cep.expression import Type
from cep.formats import dead_letter
from cep.formats.file_columns import carriage_returns, columns_without_header, refuse_trees, require_columns
from cep.formats.lines import Lines
from cep.formats.protocol import MAX_RECORD_LINES, Decoded, Indices, Problem, RecordFormat, RecordReader
from cep.formats.text.file_beginnings import refuse_other_contents
from cep.schema.masks import null_where, where_false
from cep.schema.stream import COMMA_SEPARATED, CsvLayout, Field, Stream
from cep.schema.text_values import column_from_text, event_table_schema

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class _Form:
    """The forms of lines in a layout. A line may start or end inside a quoted field."""

    quote: bytes
    lines: re.Pattern[bytes]  # any number of them, each of them a record
    record: re.Pattern[bytes]
    opens: re.Pattern[bytes]
    goes_on: re.Pattern[bytes]
    closes: re.Pattern[bytes]
    closes_and_opens: re.Pattern[bytes]


@cache
def _form_of(layout: CsvLayout) -> _Form:
    if not layout.quote:
        plain = rb"[^\r\n]*+"
        return _Form(b"", *map(re.compile, (plain + rb"(?:\n" + plain + rb")*+", *[plain] * 5)))
    separator, quote = re.escape(layout.delimiter.encode()), re.escape(layout.quote.encode())
    plain = rb"[^%b%b\r\n]*+" % (quote, separator)
    inside = rb"[^%b]*+(?:%b[^%b]*+)*+" % (quote, quote * 2, quote)
    field = rb"(?:%b%b%b|%b)" % (quote, inside, quote, plain)
    more = rb"(?:%b%b)*+" % (separator, field)
    before = rb"(?:%b%b)*+" % (field, separator)
    on_line = (field + more).replace(b"[^%b]" % quote, rb"[^%b\n]" % quote)
    forms = (
        on_line + rb"(?:\n" + on_line + rb")*+",
        field + more,
        before + quote + inside,
        inside,
        inside + quote + more,
        inside + quote + separator + before + quote + inside,
    )
    return _Form(layout.quote.encode(), *map(re.compile, forms))


def parse_header(line: bytes, layout: CsvLayout = COMMA_SEPARATED) -> list[str]:
    """Return the column names of a header line; raises ValueError if it is not one."""
    line = line.removeprefix(_BOM)
    form = _form_of(layout)
    if not line or form.record.fullmatch(line) is None:
        raise ValueError(line)
    reader = csv.reader(
        [line.decode()],
        strict=True,
        delimiter=layout.delimiter,
        quotechar=layout.quote or None,
        quoting=csv.QUOTE_MINIMAL if layout.quote else csv.QUOTE_NONE,
    )
    try:
        return next(reader)
    except csv.Error as error:
        raise ValueError(line) from error


def record_length(lines: Sequence[bytes], layout: CsvLayout) -> int:
    """Return the number of lines of the first record; 0: its end has not arrived yet."""
    form = _form_of(layout)
    if not form.quote or form.quote not in lines[0] or form.record.fullmatch(lines[0]) is not None:
        return 1
    return _length(lines, 0, form)


def read(lines: Sequence[bytes], header: Sequence[str], stream: Stream, *, is_last: bool = True) -> Decoded:
    """Decode `lines`; with `is_last` no lines follow them.

    Empty lines are neither events nor problems. `header` has every column of `stream`, each once. The index
    of an event is its first line; `Decoded.records` contains each record at its first line, and nothing at
    its other lines.
    """
    form = _form_of(stream.csv)
    lines = lines.objects() if isinstance(lines, Lines) else list(lines)
    block = b"\n".join(lines)
    n_read = len(lines)
    problems: list[Problem] = []
    has_signs = (form.quote and form.quote in block) or b"\r" in block
    has_inner_ends = block.count(b"\n") >= max(len(lines), 1)  # only messages may have them
    is_plain = _is_utf8(block) and not has_inner_ends
    is_plain = is_plain and not (has_signs and form.lines.fullmatch(block) is None)
    if not is_plain:
        lines, indices, problems, n_read = _records(lines, block, form, stream.csv, is_last)
    else:
        indices = np.arange(len(lines))
    if not all(lines) or len(indices) < len(lines):
        indices = np.array([index for index in indices.tolist() if lines[index]], np.int64)
        block = b"\n".join([lines[index] for index in indices.tolist()])
    if not len(indices):
        return Decoded(event_table_schema(stream).empty_table(), indices, problems, lines, n_read)
    has_line_ends = b"\r" in block or (not is_plain and block.count(b"\n") >= len(indices))
    texts, miscounted = _read_arrow(block, header, stream, has_line_ends=has_line_ends)
    is_event = np.ones(len(indices), dtype=bool)
    for row, reason in miscounted:
        problems.append((int(indices[row]), reason))
        is_event[row] = False
    columns, bad, reasons = [], np.zeros(texts.num_rows, dtype=bool), {}
    kept = indices[is_event]
    for field in stream.fields:
        column = texts.column(field.name)
        usual, not_written_so = usual_numbers(column, field, stream.csv)
        values, not_typed = column_from_text(usual, field)
        not_typed = not_typed if not_written_so is None else not_typed | not_written_so
        columns.append(values)
        for row in np.flatnonzero(not_typed & ~bad).tolist():
            signs = "" if not_written_so is None else stream.csv.number_form
            reasons[row] = dead_letter.wrong_type(field, column[row].as_py(), signs)
        bad |= not_typed
    events = pa.Table.from_arrays(columns, schema=event_table_schema(stream))
    if reasons:
        events = events.filter(pa.array(~bad))
        problems += [(int(kept[row]), reason) for row, reason in reasons.items()]
        kept = kept[~bad]
    problems.sort()
    return Decoded(events, kept, problems, lines, n_read)


def _is_utf8(text: bytes) -> bool:
    try:
        return text.isascii() or bool(str(text, "utf-8")) or not text
    except UnicodeDecodeError:
        return False


def _records(
    lines: Sequence[bytes], block: bytes, form: _Form, layout: CsvLayout, is_last: bool
) -> tuple[Sequence[bytes], Indices, list[Problem], int]:
    """Return lines with multi-line records joined, the indices of records, and those for `Decoded`."""
    joined: list[bytes] | None = None
    indices: list[int] = []
    problems: list[Problem] = []
    is_utf8, has_returns = _is_utf8(block), b"\r" in block
    index = 0
    while index < len(lines):
        record, n_lines, reason = lines[index], 1, None
        if form.quote and form.quote in record and form.record.fullmatch(record) is None:
            n_lines = _length(lines, index, form)
            if n_lines == 0 and not is_last:
                break
            if n_lines > 1:
                record = b"\n".join(lines[index : index + n_lines])
                joined = list(lines) if joined is None else joined
                joined[index : index + n_lines] = [record, *[b""] * (n_lines - 1)]
            else:
                n_lines = 1
                reason = dead_letter.MISPLACED_QUOTE
        if not is_utf8 and not _is_utf8(record):
            reason = dead_letter.not_encoded(layout.encoding)
        elif has_returns and b"\r" in record and form.record.fullmatch(record) is None:
            reason = _misplaced_sign(record, form)
        elif n_lines == 1 and b"\n" in record and form.record.fullmatch(record) is None:
            reason = dead_letter.LINE_FEED
        if reason is None:
            indices.append(index)
        else:
            problems.append((index, reason))
        index += n_lines
    return joined or lines, np.array(indices, np.int64), problems, index


def _misplaced_sign(record: bytes, form: _Form) -> str:
    """Return the reason for a record with carriage returns that is not one record."""
    without = record.replace(b"\r", b"")
    if form.record.fullmatch(without) is not None:
        return dead_letter.CARRIAGE_RETURN
    is_all = form.record.fullmatch(without.replace(b"\n", b"")) is not None
    return dead_letter.LINE_FEED if is_all else dead_letter.MISPLACED_QUOTE


def _length(lines: Sequence[bytes], start: int, form: _Form) -> int:
    """Return how many lines the record at `start` has; 1: it has a misplaced quote; 0: it has no end yet."""
    if form.opens.fullmatch(lines[start]) is None:
        return 1
    for index in range(start + 1, min(len(lines), start + MAX_RECORD_LINES)):
        line = lines[index]
        if form.closes.fullmatch(line) is not None:
            return index + 1 - start
        is_open = form.goes_on.fullmatch(line) or form.closes_and_opens.fullmatch(line)
        if is_open is None:
            return 1
    return 0 if len(lines) - start < MAX_RECORD_LINES else 1


def _read_arrow(
    block: bytes, header: Sequence[str], stream: Stream, *, has_line_ends: bool
) -> tuple[pa.RecordBatch, list[Problem]]:
    """Return the fields of `stream` as text, and the records with more or fewer fields than the header."""
    layout = stream.csv
    miscounted: list[Problem] = []

    def refuse(row: pyarrow.csv.InvalidRow) -> str:
        reason = dead_letter.wrong_field_count(
            row.actual_columns, row.expected_columns, has_header=layout.has_header
        )
        miscounted.append((row.number - 1, reason))
        return "skip"

    if block.startswith(_BOM):
        block = _BOM + block  # Arrow drops one, and that of the file was removed before
    names = [f"f{at}" for at in range(len(header))]
    wanted = [names[header.index(field.column)] for field in stream.fields]
    table = pyarrow.csv.read_csv(
        pa.BufferReader(block + b"\n"),
        # One thread: only then does Arrow number the rows that it refuses.
        read_options=pyarrow.csv.ReadOptions(
            use_threads=False, block_size=len(block) + 2, column_names=names
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=layout.delimiter,
            quote_char=layout.quote or False,
            newlines_in_values=has_line_ends,
            invalid_row_handler=refuse,
            ignore_empty_lines=False,
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=list(dict.fromkeys(wanted)),
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            check_utf8=False,
        ),
    )
    columns = [table.column(name).combine_chunks() for name in wanted]
    return pa.RecordBatch.from_arrays(columns, names=[field.name for field in stream.fields]), miscounted


# ---------------------------------------------------------------- the format


def csv_header(name: str, line: bytes, stream: Stream) -> list[str]:
    """Return the columns that the first line of a CSV file names, after checking them against `stream`."""
    refuse_trees(stream)
    try:
        header = parse_header(line, stream.csv)
    except ValueError:
        if b"\r" in line:
            raise carriage_returns(name) from None
        raise InputError(
            "E0606",
            f"the first line of `{name}` is not a CSV header",
            "the first line must name the columns; without them declare csv: {header: false}",
        ) from None
    require_columns(name, header, stream)
    return header


class _CsvLines:
    """CSV records; the stream gives their layout."""

    name = "csv"
    suffixes = (".csv",)

    def encoding(self, stream: Stream) -> str:
        return stream.csv.encoding

    def quote(self, stream: Stream) -> str:
        return stream.csv.quote

    def reader(self, origin: str, stream: Stream) -> RecordReader:
        return _CsvReader(origin, stream)


class _CsvReader:
    """Reads the records of one file, under its header."""

    def __init__(self, origin: str, stream: Stream) -> None:
        self.origin = origin
        self.stream = stream
        self._header: list[str] | None = None

    def begin(self, records: Sequence[bytes], *, is_last: bool) -> int | None:
        refuse_other_contents(self.origin, records[0], "declare csv: {encoding: utf-16}")
        layout = self.stream.csv
        if not layout.has_header:
            self._header = columns_without_header(self.stream)
            return 0
        n_header = record_length(records, layout)
        if n_header == 0 and not is_last:
            return None
        n_header = max(n_header, 1)
        self._header = csv_header(self.origin, b"\n".join(records[:n_header]), self.stream)
        return n_header

    def decode(self, records: Sequence[bytes], *, is_last: bool) -> Decoded:
        if self._header is None:
            self._header = columns_without_header(self.stream)
        return read(records, self._header, self.stream, is_last=is_last)


CSV_LINES: RecordFormat = _CsvLines()


def usual_numbers(texts: pa.Array, field: Field, layout: CsvLayout) -> tuple[pa.Array, Mask | None]:
    """Return the strings of a column with numbers as `column_from_text` reads them.

    Returns
    -------
    pa.Array
        The strings, NULL for a number whose form is not that of the layout.
    bool[n] or None
        The rows with such numbers; None: there are none.
    """
    is_number = field.type in (Type.DOUBLE, Type.BIGINT) or bool(field.unit)
    if not is_number or not layout.number_form:
        return texts, None
    is_whole = field.type is Type.BIGINT
    bad = where_false(pc.match_substring_regex(texts, _pattern(layout.decimal, layout.thousands, is_whole)))
    texts = null_where(bad, texts)
    if layout.thousands:
        texts = pc.replace_substring(texts, layout.thousands, "")
    return pc.replace_substring(texts, layout.decimal, "."), bad


@cache
def _pattern(decimal: str, thousands: str, is_whole: bool) -> str:
    point = re.escape(decimal)
    grouped = f"|[0-9]{{1,3}}(?:{re.escape(thousands)}[0-9]{{3}})+" if thousands else ""
    whole = f"(?:[0-9]+{grouped})"
    if is_whole:
        return f"^-?{whole}$"
    digits = f"(?:{whole}(?:{point}[0-9]*)?|{point}[0-9]+)"
    return f"^(?:-?{digits}(?:[eE][+-]?[0-9]+)?|NaN|-?Infinity)$"
