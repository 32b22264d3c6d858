"""What a pipeline file may say of NATS; nothing here needs a server or nats-py."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cep.errors import InputError, RuleError, SetupError
from spark_runtime.connectors.message_logs.options import Options
from spark_runtime.connectors.message_logs.settings import MessageSpec
from spark_runtime.connectors.nats import log as nats_log
from spark_runtime.connectors.nats.log import NatsLog, overlap
from spark_runtime.pipeline.pipeline_file import load_pipeline

FILE = """
streams: {{t: {{event_time: ts, schema: {{id: bigint, ts: timestamp}}}}}}
rules: [r.cep]
source: {{stream: t, format: nats, {source}}}
sinks: [{{format: console}}]
checkpoint: c
"""


def source_of(folder: Path, text: str) -> tuple[MessageSpec, NatsLog]:
    (folder / "r.cep").write_text("RULE r FROM t PARTITION BY id PATTERN a DEFINE a AS id > 0")
    (folder / "p.yaml").write_text(FILE.format(source=text))
    spec = load_pipeline(folder / "p.yaml").sources[0].spec
    assert isinstance(spec, MessageSpec)
    assert isinstance(spec.log, NatsLog)
    return spec, spec.log


def problems(folder: Path, source: str) -> list[str]:
    with pytest.raises(RuleError) as caught:
        source_of(folder, source)
    return [f"{problem.code} {problem.title}: {problem.help}" for problem in caught.value.diagnostics]


def test_settings_are_read_and_secrets_are_not_shown(tmp_path: Path) -> None:
    spec, log = source_of(tmp_path, "servers: 'a:1', stream_name: S")
    assert (spec.place, spec.begin, log.servers, log.streams, log.subjects) == (
        "S",
        "earliest",
        ("a:1",),
        ("S",),
        (),
    )
    spec, log = source_of(
        tmp_path,
        "servers: ['nats://joe:pass@a:1', b:1], stream_name: S, subject: [x.*, y], from: {'S[y]': 7}, "
        "on_lost: go_on, max_events_per_trigger: 9, options: {user: u, password: '${P}x'}",
    )
    assert (spec.place, spec.begin, spec.goes_on_without, spec.max_events) == (
        "S x.*,y",
        {"S[y]": 7},
        True,
        9,
    )
    assert log.where == "a:1,b:1"
    assert "${P}x" not in repr(spec)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("stream_name: S", ["E0404 `source` has no `servers`: add: servers: ..."]),
        ("servers: a", ["E0404 `source` has no `stream_name`: add: stream_name: ..."]),
        (
            "servers: a, stream_name: S, from: {T: 1}",
            ["E0841 `T` is no partition: write {S: 100}"],
        ),
        (
            "servers: a, stream_name: S, from: soon",
            [
                "E0841 `from` cannot be `soon`: write earliest, latest, a time such as 2024-05-01T12:00:00Z, "
                "or sequence numbers: {S: 100}"
            ],
        ),
        (
            "servers: a, stream_name: S, subject: [a.*, '*.b']",
            [
                "E0843 a message may be of subject `a.*` and of `*.b`, and would be read twice: "
                "write subjects that have no message in common"
            ],
        ),
        (
            "servers: a, stream_name: S, options: {pass: x}",
            [
                "E0841 there is no option `pass`: "
                "write user, password, token, credentials, tls_ca, tls_cert, tls_key"
            ],
        ),
        (
            "servers: a, stream_name: S, columns: {key: id}",
            ["E0841 a message has no `key`: write subject, headers, sequence, timestamp or header.NAME"],
        ),
    ],
)
def test_what_is_wrong_is_told_with_what_to_write(tmp_path: Path, source: str, found: list[str]) -> None:
    assert problems(tmp_path, source) == found


def test_a_missing_package_is_told_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cep.packages.find_spec", lambda name: None)
    assert problems(tmp_path, "servers: a, stream_name: S") == [
        "E0683 `source` of format nats needs the package `nats`, which is not installed: "
        "pip install 'spark-cep[nats]'"
    ]


@pytest.mark.parametrize(
    ("one", "other", "do"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        ("*.b", "a.>", True),
        ("*.b", "a.c", False),
    ],
)
def test_filters_of_subjects_overlap_if_a_subject_may_match_both(one: str, other: str, do: bool) -> None:
    assert overlap(one.split("."), other.split(".")) is do
    assert overlap(other.split("."), one.split(".")) is do


def test_credentials_without_the_package_that_reads_them_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.creds").write_text("")
    _, log = source_of(
        tmp_path, f"servers: 'a:1', stream_name: S, options: {{credentials: {tmp_path}/a.creds}}"
    )
    monkeypatch.setattr(nats_log, "is_installed", lambda package: False)
    with pytest.raises(SetupError, match="`credentials` needs the package `nkeys`") as caught:
        asyncio.run(nats_log.connected(log, lambda: None))
    assert caught.value.code == "E0683"


@pytest.mark.parametrize(("given", "shown"), [("${CREDENTIALS}", "***"), ("nats.creds", "nats.creds")])
def test_a_variable_that_names_no_file_of_credentials_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, given: str, shown: str
) -> None:
    monkeypatch.setenv("CREDENTIALS", "-----BEGIN NATS USER JWT-----\neyJ0eXAi\n")
    with pytest.raises(InputError) as raised:
        nats_log._credentials(Options((("credentials", given),)))
    assert raised.value.args[0] == f"there is no file `{shown}`"
