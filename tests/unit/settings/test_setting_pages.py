"""Tables of settings in the pages of `docs/`: they have the declared settings, words and defaults."""

from __future__ import annotations

import re

import pytest

from cep.schema.time_literals import parse_duration
from cep.settings.csv_settings import CsvSettings
from cep.settings.declared import Declared, Setting, declared_settings
from cep.settings.schema_file import ColumnSettings, OfAll, OfStreams
from cep.settings.table_settings import OfTables
from spark_runtime.connectors.files.source_settings import Files
from spark_runtime.connectors.message_logs.settings import MessageSettings
from spark_runtime.connectors.rate.source import Rate
from spark_runtime.pipeline.pipeline_file import OfAllSources, PipelineSettings
from spark_runtime.sinks.registry import SINKS
from spark_runtime.sources.registry import SOURCES
from tests.pages import DOCS


def of(*declarations: type) -> dict[str, Setting]:
    return {name: setting for each in declarations for name, setting in declared_settings(each).items()}


def of_format(found: object, *declarations: type) -> dict[str, Setting]:
    assert isinstance(found, Declared)
    return of(found.declaration, *declarations)


def source(name: str, *declarations: type) -> dict[str, Setting]:
    return of_format(SOURCES.get(name), *declarations)


def sink(name: str) -> dict[str, Setting]:
    return of_format(SINKS.get(name))


def own_of(name: str) -> dict[str, Setting]:
    """Return the settings of a log of messages that other logs do not have."""
    return {each: setting for each, setting in source(name).items() if each not in of(MessageSettings)}


TABLES = {
    "reference/pipeline.md": [of(PipelineSettings), of(Files, Rate, OfAllSources)],
    "reference/input.md": [of(OfAll, OfStreams), of(ColumnSettings), of(CsvSettings)],
    "guides/tables.md": [of(OfTables)],
    "connectors/message_sources.md": [of(MessageSettings, OfAllSources)],
    "connectors/kafka.md": [own_of("kafka"), sink("kafka"), source("kafka")],
    "connectors/nats.md": [own_of("nats")],
    "connectors/kinesis.md": [own_of("kinesis")],
    "connectors/rabbitmq_streams.md": [own_of("rabbitmq_stream")],
    "connectors/postgres.md": [source("postgres", OfAllSources)],
    "connectors/spool.md": [source("spool", OfAllSources)],
    "connectors/delta.md": [sink("delta")],
    "connectors/webhook.md": [sink("webhook")],
    "connectors/postgres_sink.md": [sink("postgres")],
    "connectors/rabbitmq.md": [sink("rabbitmq")],
}
"""Page -> the settings of each of its tables."""

NAMES_MORE = {
    ("reference/pipeline.md", 1): {"from", "value", "columns", "tables", "slot"},  # of other pages
    ("guides/tables.md", 0): {"event_time"},  # a table means something else by it
}
NOT_IN_TABLE = {
    ("connectors/kafka.md", 0): {"via"},  # has a section
    ("connectors/kafka.md", 2): set(source("kafka")),  # only what differs with `via: spark`
}
NO_WORDS = {("connectors/rabbitmq_streams.md", "tombstones"): {"delete"}}  # messages there have no key

Row = tuple[list[str], str]
"""The settings of a row, and its text."""


def tables(page: str) -> list[list[Row]]:
    text = (DOCS / page).read_text()
    found = re.findall(r"^\| Setting(?: of a source)? \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [[row_of(line) for line in table.splitlines()] for table in found]


def row_of(line: str) -> Row:
    first, _, rest = line.strip("|").partition("|")
    return re.findall(r"`([a-z_]+)(?:: [^`]*)?`", first), rest


CASES = [(page, at) for page, of_page in TABLES.items() for at in range(len(of_page))]


@pytest.mark.parametrize("page", TABLES)
def test_each_table_of_settings_of_a_page_is_compared(page: str) -> None:
    others = 1 if page == "connectors/payloads.md" else 0
    assert len(tables(page)) == len(TABLES[page]) + others


@pytest.mark.parametrize(("page", "at"), CASES)
def test_a_table_has_the_settings_that_are_declared(page: str, at: int) -> None:
    known, rows = TABLES[page][at], tables(page)[at]
    named = {name for names, _ in rows for name in names}
    mentioned = {name for _, text in rows for name in re.findall(r"`([a-z_]+)`", text)}
    assert named - set(known) - NAMES_MORE.get((page, at), set()) == set()
    assert set(known) - named - mentioned - NOT_IN_TABLE.get((page, at), set()) == set()


@pytest.mark.parametrize(("page", "at"), CASES)
def test_a_table_has_the_words_and_defaults_that_are_declared(page: str, at: int) -> None:
    known = TABLES[page][at]
    if (page, at) in NOT_IN_TABLE and NOT_IN_TABLE[page, at] == set(known):
        return
    rows = [(names, text) for names, text in tables(page)[at] if set(names) <= set(known)]
    for names, text in rows:
        words = [word for name in names for word in known[name].words]
        left_out = NO_WORDS.get((page, names[0]), set())
        assert {word for word in words if f"`{word}`" not in text} == left_out, names
        defaults = re.findall(r"`(\w+)`(?: \(default\)|, the default)", text)
        chosen = [known[name].words[0] for name in names if known[name].words]
        assert not chosen or not defaults or set(defaults) == set(chosen), names
        numbers = [known[name].default for name in names if isinstance(known[name].default, int | float)]
        for amount in re.findall(r"(\d[\d,]*(?: (?:seconds?|minutes?))?) by default", text):
            length_us = parse_duration(amount)
            default = int(amount.replace(",", "")) if length_us is None else length_us / 1e6
            assert not numbers or default in numbers, (names, amount)


def test_streams_and_tables_have_the_settings_that_the_pages_name() -> None:
    text = "".join((DOCS / page).read_text() for page in ("reference/input.md", "guides/tables.md"))
    assert [name for name in of(OfAll, OfTables) if f"`{name}" not in text and f"{name}:" not in text] == []
