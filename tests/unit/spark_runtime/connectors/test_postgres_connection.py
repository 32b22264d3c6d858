"""Messages about a connection to PostgreSQL that cannot be made."""

from __future__ import annotations

import pytest

from cep.errors import InputError
from spark_runtime.connectors.postgres.connection import Connection


@pytest.mark.parametrize(
    ("name", "value"),
    [("sslmode", "maybe"), ("nosuch", "1"), ("port", "x"), ("keepalives", "x"), ("gssencmode", "x")],
)
def test_a_parameter_that_libpq_does_not_know_is_told_as_such(name: str, value: str) -> None:
    pytest.importorskip("psycopg")
    parameters = {"host": "127.0.0.1", "port": "1", name: value}
    with pytest.raises(InputError) as caught:
        Connection(tuple(parameters.items())).connect()
    assert caught.value.code == "E0867"
    assert str(caught.value.args[0]).startswith("a setting of the connection to `127.0.0.1:")
    assert value in str(caught.value.args[0]) or name in str(caught.value.args[0])
    assert "correct `options` or `dsn`" in str(caught.value)


def test_a_server_that_does_not_answer_is_still_told_as_such() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(InputError) as caught:
        Connection((("host", "127.0.0.1"), ("port", "1"))).connect()
    assert caught.value.code == "E0860"
