from __future__ import annotations

from pathlib import Path

import pytest

from cep.diagnostics.limits import MAX_BYTES
from cep.errors import RuleError
from cep.rulebook import load_rulebook
from cep.settings.schema_file import load_streams
from cep.settings.source_file import read_source, source_of


@pytest.mark.parametrize("data", [b"a\nb\n", b"\xef\xbb\xbfa\r\nb\r\n", b"a\rb\r"])
def test_byte_order_mark_and_line_ends_of_any_system_are_read(data: bytes) -> None:
    assert source_of("r.cep", data, 100).text == "a\nb\n"


def test_a_file_is_read_up_to_its_limit_and_not_beyond(tmp_path: Path) -> None:
    path = tmp_path / "r.cep"
    path.write_bytes(b"x" * 10)
    assert read_source(path, 10).text == "x" * 10
    with pytest.raises(RuleError, match="more than 9 bytes"):
        read_source(path, 9)


def test_a_file_without_end_is_refused(tmp_path: Path) -> None:
    streams = tmp_path / "streams.yaml"
    streams.write_text("streams: {s: {event_time: ts, schema: {ts: timestamp}}}")
    large = tmp_path / "large.cep"
    large.write_bytes(b"-" * (MAX_BYTES + 1))
    for path in ("/dev/zero", large):
        with pytest.raises(RuleError) as caught:
            load_rulebook([path], streams)
        assert [problem.code for problem in caught.value.diagnostics] == ["E0901"]
    with pytest.raises(RuleError) as caught:
        load_streams("/dev/zero")
    assert [problem.code for problem in caught.value.diagnostics] == ["E0901"]
