"""`${NAME}` in texts of a pipeline file: replaced where a client is made, and never shown."""

from __future__ import annotations

import pytest

from cep.errors import InputError
from spark_runtime.sources.secrets import all_replaced, replaced, variables_of, without_secrets


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
    "name", ["password", "sasl.password", "client_secret", "ssl.key.pem", "token", "sasl.jaas.config"]
)
def test_no_message_shows_the_text_of_a_setting_that_names_a_secret(name: str) -> None:
    assert without_secrets("it is: abc", named=((name, "abc"), ("user", "it"))) == "it is: ***"
