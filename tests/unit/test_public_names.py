"""The names that stay: of `cep` and `spark_runtime`, and the only ones that README and docs import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cep
import spark_runtime
from cep import RuleError, Stream, load_rules, load_streams

ROOT = Path(__file__).parents[2]

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_public_names_are_these() -> None:
    assert cep.__all__ == [
        *(
            "BadFile",
            "CepError",
            "Counts",
            "DeviceClock",
            "Diagnostic",
            "Field",
            "Format",
            "InputError",
            "Result",
            "RuleError",
        ),
        *("RuleSet", "SetupError", "StateError", "Stream", "find_matches", "find_reasons", "load_rules"),
        *("load_streams", "match_file"),
    ]
    assert spark_runtime.__all__ == [
        *("TimeListener", "detect", "detect_all", "messages", "run_pipeline", "session", "split")
    ]


@pytest.mark.parametrize("package", [cep, spark_runtime], ids=lambda package: package.__name__)
def test_each_public_name_is_there_and_says_what_it_is(package: object) -> None:
    for name in package.__all__:  # type: ignore[attr-defined]
        assert getattr(package, name).__doc__


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module `cep` has no `compile`"):
        cep.compile  # noqa: B018
    with pytest.raises(AttributeError, match="module `spark_runtime` has no `run`"):
        spark_runtime.run  # noqa: B018


def test_an_import_of_the_package_loads_neither_arrow_nor_numba() -> None:
    code = (
        "import cep, spark_runtime, sys; cep.load_streams, cep.RuleError;"
        "print(sorted({'pyarrow', 'numba', 'numpy', 'pyspark', 'pandas'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_docs_import_public_names_only(page: Path) -> None:
    public = {"cep": cep.__all__, "spark_runtime": spark_runtime.__all__}
    for block in re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            module = getattr(node, "module", None) or ""
            if isinstance(node, ast.ImportFrom) and module.split(".")[0] in public:
                assert [item.name for item in node.names if item.name not in public[module]] == []


STREAMS = """
streams:
  payments: {event_time: ts, schema: {ts: timestamp, card: string, amount: double}}
"""
RULE = "RULE big FROM payments PARTITION BY card PATTERN a DEFINE a AS amount > 100"


def test_rules_are_loaded_from_texts_and_files_together(tmp_path: Path) -> None:
    (tmp_path / "streams.yaml").write_text(STREAMS)
    (tmp_path / "big.cep").write_text(RULE)
    streams = load_streams(tmp_path / "streams.yaml")
    other = RULE.replace("big", "small").replace(">", "<")
    for declared in (streams, tmp_path / "streams.yaml", streams["payments"]):
        found = load_rules([other, tmp_path / "big.cep"], declared)
        assert [rule.name for rule in found.rules] == ["small", "big"]
    assert [rule.name for rule in load_rules(tmp_path).rules] == ["big"]
    assert [rule.name for rule in load_rules(str(tmp_path / "big.cep")).rules] == ["big"]
    assert isinstance(found.streams["payments"], Stream)


def test_a_rule_text_without_streams_is_refused() -> None:
    with pytest.raises(RuleError) as caught:
        load_rules(RULE)
    assert str(caught.value) == (
        "error[E0612]: a rule text has no streams file beside it\n"
        "help: give `streams`: a streams file, or what load_streams returns"
    )
