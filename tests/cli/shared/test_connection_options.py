from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.cli.shared.connection_options import where
from headrace.errors import ConfigurationError


def environ(directory: Path, **variables: str) -> dict[str, str]:
    (directory / "nats" / "context").mkdir(parents=True, exist_ok=True)
    (directory / "nats" / "context" / "prod.json").write_text(
        json.dumps(
            {"url": "nats://prod:4222", "user": "ann", "password": "a", "jetstream_domain": "hub"}
        )
    )
    return {"XDG_CONFIG_HOME": str(directory), **variables}


def test_nothing_said_is_this_machine(tmp_path: Path) -> None:
    found = where({}, environ(tmp_path))
    assert found.servers == "nats://127.0.0.1:4222"
    assert (found.timeout, found.context.options.request_timeout) == (5.0, 5.0)


def test_an_option_wins_over_a_variable_and_that_over_a_context(tmp_path: Path) -> None:
    given = {"context": "prod"}
    assert where(given, environ(tmp_path)).servers == "nats://prod:4222"
    variables = environ(tmp_path, NATS_URL="nats://env:1")
    assert where(given, variables).servers == "nats://env:1"
    assert where({**given, "server": "nats://flag:1"}, variables).servers == "nats://flag:1"


def test_a_login_that_is_typed_replaces_any_other(tmp_path: Path) -> None:
    variables = environ(tmp_path, NATS_CREDS="/no/such.creds")
    found = where({"context": "prod", "token": "t"}, variables).context.options
    assert (found.user, found.password, found.token, found.credentials_file) == ("", "", "t", "")
    lone = where({"user": "s3cret"}, environ(tmp_path)).context.options
    assert (lone.user, lone.token) == ("", "s3cret")


def test_a_prefix_replaces_the_domain_of_a_context(tmp_path: Path) -> None:
    given = {"context": "prod"}
    assert where(given, environ(tmp_path)).context.domain == "hub"
    found = where({**given, "js_api_prefix": "JS.other"}, environ(tmp_path)).context
    assert (found.domain, found.prefix) == ("", "JS.other")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"user": "a", "token": "t"}, "one way to log in"),
        ({"password": "a"}, "one way to log in"),
        ({"token": "t", "password": "a"}, "--password needs --user"),
        ({"nkey": "/no/such"}, "--nkey /no/such: No such file"),
        ({"context": "nope"}, "there are: prod"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        where(given, environ(tmp_path))
