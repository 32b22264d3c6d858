"""Bodies of a webhook: templates that are filled with values of rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cep.errors import InputError, RuleError
from spark_runtime.connectors.webhook.settings import WebhookSpec
from spark_runtime.connectors.webhook.template import Template
from spark_runtime.pipeline.pipeline_file import load_pipeline

STREAMS = """\
streams: {s: {event_time: ts, schema: {card_id: string, ts: timestamp, amount: double, note: string}}}
"""
RULE = """\
RULE r FROM s PARTITION BY card_id PATTERN a DEFINE a AS amount > 0
MEASURES a.amount AS loss, a.note AS note, a.amount > 5 AS large
"""
HEAD = """\
streams: streams.yaml
rules: [r.cep]
source: {stream: s, format: json, path: in}
checkpoint: c
"""
ROW = {"rule": "r", "card_id": 'c"1', "loss": 1e22, "large": True}


def spec_of(folder: Path, body: str, more: str = "") -> WebhookSpec:
    (folder / "streams.yaml").write_text(STREAMS)
    (folder / "r.cep").write_text(RULE)
    text = f'{HEAD}sinks:\n  - format: webhook\n    url: "http://h/"\n    body: {body}\n{more}'
    (folder / "p.yaml").write_text(text)
    (spec,) = load_pipeline(folder / "p.yaml").sinks
    assert isinstance(spec, WebhookSpec)
    return spec


def template(folder: Path, body: str) -> Template:
    found = spec_of(folder, body).template
    assert found is not None
    return found


def filled(folder: Path, body: str, row: str | None = None) -> Any:
    return json.loads(template(folder, body).filled(row or json.dumps(ROW)))


def test_a_value_alone_keeps_its_type_and_its_digits(tmp_path: Path) -> None:
    body = '{a: "{{loss}}", b: "{{ note }}", c: "{{large}}", d: "{{card_id}}"}'
    row = '{"card_id":"c","loss":12345678901234567890.10,"large":false}'
    assert template(tmp_path, body).filled(row) == (
        '{"a":12345678901234567890.10,"b":null,"c":false,"d":"c"}'
    )


def test_within_a_text_values_are_texts_and_null_is_nothing(tmp_path: Path) -> None:
    row = '{"card_id":"c","loss":949.0,"large":true,"note":"n"}'
    body = '{text: "{{rule}}<{{card_id}}> {{loss}}/{{large}} {{note}}{{note}}"}'
    assert filled(tmp_path, body, row) == {"text": "<c> 949.0/true nn"}


@pytest.mark.parametrize(
    "value",
    [
        '"',
        "\\",
        '"}, {"x": "',
        "{{loss}}",
        "${HOME}",
        "\u2028\n\r\t\0\x1f",
        "\U0001f600",
        "}}",
        "</script>",
        "'",
    ],
)
def test_no_value_leaves_its_place(tmp_path: Path, value: str) -> None:
    row = json.dumps({"card_id": value, "loss": 1})
    body = '{a: "{{card_id}}", b: "<{{card_id}}>", c: ["{{loss}}"]}'
    assert filled(tmp_path, body, row) == {"a": value, "b": f"<{value}>", "c": [1]}


def test_structures_and_constants_are_as_they_are_written(tmp_path: Path) -> None:
    body = """{"n": 1, "f": 1.50, "t": true, "z": null, "s": "1", "w": yes, "d": 2024-05-01,
      "e": {}, "l": [[]], "row": "{{*}}", "o": 0640}"""
    found = template(tmp_path, body).filled('{"rule":"r","loss":1.50}')
    assert '"f":1.50,' in found
    assert json.loads(found) == {
        "n": 1,
        "f": 1.5,
        "t": True,
        "z": None,
        "s": "1",
        "w": "yes",
        "d": "2024-05-01",
        "e": {},
        "l": [[]],
        "row": {"rule": "r", "loss": 1.5},
        "o": "0640",
    }


def test_a_list_and_an_event_stay_what_they_are(tmp_path: Path) -> None:
    row = '{"note":[{"x":1.0,"y":null},["\\""]]}'
    body = '{whole: "{{note}}", text: "n={{note}}"}'
    expected = {"whole": [{"x": 1.0, "y": None}, ['"']], "text": 'n=[{"x":1.0,"y":null},["\\""]]'}
    assert filled(tmp_path, body, row) == expected


def test_secrets_are_of_the_environment_and_no_placeholder_is_made_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(tmp_path, '{key: "${KEY}", text: "{{rule}} ${KEY}"}')
    assert spec.template is not None
    assert spec.endpoint.other_texts == ("${KEY}",)
    assert "KEY" not in repr(spec.endpoint)
    monkeypatch.delenv("KEY", raising=False)
    with pytest.raises(InputError, match="`body` needs the variable `KEY`") as raised:
        spec.template.with_secrets()
    assert raised.value.code == "E0853"
    monkeypatch.setenv("KEY", 's3"{{loss}}')
    found = json.loads(spec.template.with_secrets().filled('{"rule":"r","loss":1}'))
    assert found == {"key": 's3"{{loss}}', "text": 'r s3"{{loss}}'}
    assert spec.endpoint.told('no such key: s3"{{loss}}') == "no such key: ***"


def problem(folder: Path, body: str, more: str = "") -> str:
    with pytest.raises(RuleError) as caught:
        spec_of(folder, body, more)
    [found] = caught.value.diagnostics
    return f"{found.code} {found.title}; {found.help}"


COLUMNS = "columns: card_id, large, loss, match_end, match_id, match_start, note, rule"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            '{text: "{{card}}"}',
            "E0836 `body` names the column `card`, which rows do not have; did you mean `card_id`? "
            + COLUMNS,
        ),
        ('{text: "x {{}}"}', "E0836 `body` names the column ``, which rows do not have; " + COLUMNS),
        (
            '{text: "{{rule"}',
            "E0836 `body` has a placeholder that does not end, or does not begin; "
            "write for example {{match_id}}",
        ),
        (
            "{text: {{rule}}}",
            'E0836 `body` has a placeholder without quotes; put it into quotes: "{{rule}}"',
        ),
        ('{"{{rule}}": 1}', "E0836 `body` has a placeholder in a name; write it as a value"),
        (
            "text",
            "E0841 `body` cannot be `text`; write json or bulk, or what is to be sent, as a structure: "
            'body: {text: "{{rule}}"}',
        ),
    ],
)
def test_what_is_no_template_is_told_when_the_file_is_read(tmp_path: Path, body: str, expected: str) -> None:
    assert problem(tmp_path, body) == expected


def test_the_place_of_a_column_is_shown(tmp_path: Path) -> None:
    with pytest.raises(RuleError) as caught:
        spec_of(tmp_path, '\n      text: "{{card}} lost"')
    assert str(caught.value).splitlines()[3:6] == [
        ' 9 |       text: "{{card}} lost"',
        "   |             ^^^^^^^^^^^^^^^ not a column",
        "   |",
    ]


def test_late_events_and_dead_letters_have_columns_of_their_own(tmp_path: Path) -> None:
    late = 'late: {format: webhook, url: "http://h/", body: {amount: "{{amount}}", loss: "{{loss}}"}}\n'
    assert problem(tmp_path, "json", late).startswith("E0836 `body` names the column `loss`")
    dead = 'dead_letter: {format: webhook, url: "http://h/", body: {reason: "{{reason}}", x: "{{rule}}"}}\n'
    assert problem(tmp_path, "json", dead).startswith("E0836 `body` names the column `rule`")


def test_a_row_that_withdraws_another_one_may_have_a_body_of_its_own(tmp_path: Path) -> None:
    more = "late: correct within 1 hour\n"
    retract = '{a: "{{rule}}"}\n    body_of_retract: {a: "{{kind}} {{revision}} {{rules}}"}'
    assert problem(tmp_path, retract, more).startswith("E0836 `body_of_retract` names the column `rules`")
    retract = '{a: "{{rule}}"}\n    body_of_retract: {a: "{{kind}}"}'
    assert spec_of(tmp_path, retract, more).withdrawing is not None
    assert problem(tmp_path, "json\n    body_of_retract: {a: 1}").startswith("E0843 `body_of_retract` is a")
