"""`${NAME}` in texts of a pipeline file: replaced where a client is made, and never shown."""

from __future__ import annotations

import re

import pytest

from cep.errors import InputError
from spark_runtime.sources.secrets import (
    all_replaced,
    replaced,
    replaced_within,
    variables_of,
    without_secrets,
)


def test_variables_are_replaced_and_other_dollars_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORD", "hidden")
    assert replaced("url", "a${WORD}b$WORD${} ${WORD}") == "ahiddenb$WORD${} hidden"
    assert all_replaced((("user", "me"), ("password", "${WORD}"))) == {"user": "me", "password": "hidden"}
    assert variables_of("a${WORD}${OTHER}${}") == ["${WORD}", "${OTHER}"]


def test_a_missing_variable_is_one_error_with_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORD", raising=False)
    with pytest.raises(InputError) as raised:
        replaced("password", "${WORD}")
    assert raised.value.code == "E0853"
    assert str(raised.value.args[0]) == (
        "`password` needs the variable `WORD`, which the environment does not have"
    )
    assert raised.value.help == "set it where the pipeline is started: export WORD=..."


def test_no_message_shows_a_variable_or_a_text_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORD", "hidden")
    monkeypatch.delenv("MISSING", raising=False)
    assert without_secrets("x-hidden,\n hidden", ["x-${WORD}"]) == "***, ***"
    assert without_secrets("hidden", ["${MISSING}${WORD}"]) == "***"
    assert without_secrets("x-hidden", ["no variable", ""]) == "x-hidden"


@pytest.mark.parametrize(
    "said",
    [
        "/h?t=top secret/ä",  # urlsplit removes the line feed
        "got 'top secret/ä\\n'",
        "got b'top secret/\\xc3\\xa4\\n'",
        "got 'top secret/\\xe4\\n'",
        '{"t": "top secret/\\u00e4\\n"}',
        "/h?t=top%20secret/%C3%A4%0A",
        "t=top+secret%2F%C3%A4",
        "Basic dG9wIHNlY3JldC/DpAo=",
        "Basic dG9wIHNlY3JldC_DpAo",
    ],
)
def test_a_secret_is_hidden_in_the_forms_in_which_programs_quote_it(
    monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setenv("WORD", "top secret/ä\n")
    shown = without_secrets(said, ["${WORD}"])
    assert "***" in shown
    assert "secret" not in shown.lower()
    assert "dG9w" not in shown


def test_a_line_of_a_secret_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "-----BEGIN KEY-----\nMC4CAQAwBQ\n-----END KEY-----\n")
    assert without_secrets("bad line: MC4CAQAwBQ", ["${KEY}"]) == "bad line: ***"


@pytest.mark.parametrize("value", ["t0p\n", "t0p s3cret", "t0p\ts3cret", "t0p#s3cret", "t0pä", "t0p\udcff"])
def test_a_value_with_a_wrong_character_is_told_by_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("WORD", value)
    with pytest.raises(InputError) as raised:
        replaced_within("url", "a/${WORD}", re.compile("[a-z0-9/]*"))
    assert (raised.value.code, raised.value.args[0]) == (
        "E0853",
        "the value of the variable `WORD` has a character that `url` cannot contain",
    )
    assert "t0p" not in f"{raised.value} {raised.value.help}"


@pytest.mark.parametrize(
    "name", ["password", "sasl.password", "client_secret", "ssl.key.pem", "token", "sasl.jaas.config"]
)
def test_no_message_shows_the_text_of_a_setting_that_names_a_secret(name: str) -> None:
    assert without_secrets("it is: abc", named=((name, "abc"), ("user", "it"))) == "it is: ***"
