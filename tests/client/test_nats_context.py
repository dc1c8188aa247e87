"""Contexts and variables, as the ``nats`` tool keeps them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.client.nats_context import read_context
from headrace.errors import ConfigurationError


def keep(home: Path, name: str, **settings: Any) -> dict[str, str]:
    directory = home / ".config" / "nats" / "context"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.json").write_text(json.dumps(settings))
    return {"HOME": str(home)}


def test_without_anything_it_is_the_local_server(tmp_path: Path) -> None:
    context = read_context(environ={"HOME": str(tmp_path)})
    assert (context.name, context.servers) == ("", "nats://127.0.0.1:4222")


def test_a_context_is_read_with_what_it_says(tmp_path: Path) -> None:
    home = keep(
        tmp_path,
        "dev",
        description="ours",
        url="nats://a,nats://b",
        user="u",
        password="p",
        jetstream_domain="hub",
        inbox_prefix="_MINE",
        color_scheme="",
    )
    context = read_context("dev", environ=home)
    assert context.servers == "nats://a,nats://b"
    assert (context.options.user, context.options.password) == ("u", "p")
    assert (context.domain, context.options.inbox_prefix) == ("hub", "_MINE")
    assert "password='p'" not in repr(context)


def test_the_selected_context_or_the_named_one_is_used_and_variables_win(tmp_path: Path) -> None:
    home = keep(tmp_path, "one", url="nats://one")
    keep(tmp_path, "two", url="nats://two", token="t")
    (tmp_path / ".config" / "nats" / "context.txt").write_text("one\n")
    assert read_context(environ=home).servers == "nats://one"
    assert read_context(environ={**home, "NATS_CONTEXT": "two"}).servers == "nats://two"
    changed = read_context("two", environ={**home, "NATS_URL": "nats://three"})
    assert (changed.servers, changed.options.token) == ("nats://three", "t")
    elsewhere = {"XDG_CONFIG_HOME": str(tmp_path / ".config"), "HOME": "/nowhere"}
    assert read_context(environ=elsewhere).servers == "nats://one"


def test_a_lone_user_is_a_token(tmp_path: Path) -> None:
    context = read_context(environ={"HOME": str(tmp_path), "NATS_USER": "s3cret"})
    assert (context.options.user, context.options.token) == ("", "s3cret")


def test_a_lone_user_of_a_file_is_a_user_without_a_password(tmp_path: Path) -> None:
    context = read_context("one", environ=keep(tmp_path, "one", user="joe"))
    assert (context.options.user, context.options.token) == ("joe", "")


def test_of_several_ways_to_log_in_the_tool_s_first_one_counts(tmp_path: Path) -> None:
    creds = tmp_path / "x.creds"
    home = keep(tmp_path, "all", user="u", password="p", creds=str(creds), token="t")
    assert read_context("all", environ=home).options.user == "u"
    home = keep(tmp_path, "some", creds=str(creds), token="t", password="left over")
    options = read_context("some", environ=home).options
    assert (options.credentials_file, options.token, options.password) == (str(creds), "", "")
    home = keep(tmp_path, "other", token="t")
    options = read_context("other", environ={**home, "NATS_CREDS": str(creds)}).options
    assert (options.credentials_file, options.token) == (str(creds), "")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"url": 1}, "url"),
        ({"cert": "/none.pem"}, "both cert and key"),
        ({"ca": "/none.pem"}, "TLS files"),
        ({"nkey": "/none.nk"}, "NKEY file"),
        ({"nsc": "nsc://op/acc/user"}, "has nsc, .* credentials file"),
        ({"user_jwt": "ey"}, "has user_jwt, .* credentials file"),
        ({"socks_proxy": "socks://proxy"}, "has socks_proxy"),
        ({"inbox_prefix": "a b"}, "inbox_prefix"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, settings: dict[str, Any], reason: str) -> None:
    home = keep(tmp_path, "bad", **settings)
    with pytest.raises(ConfigurationError, match=reason):
        read_context("bad", environ=home)


def test_a_missing_context_is_named_with_those_there_are(tmp_path: Path) -> None:
    home = keep(tmp_path, "dev", url="")
    with pytest.raises(ConfigurationError, match="no context 'prod'; there are: dev"):
        read_context("prod", environ=home)
    with pytest.raises(ConfigurationError, match="not a file name"):
        read_context("../dev", environ=home)
