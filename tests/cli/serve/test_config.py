from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.server import User
from headrace.cli import main
from headrace.cli.serve import add_arguments, spell
from headrace.cli.serve.config import SETTINGS, broker_options, given_flags, read_file
from headrace.errors import ConfigurationError


def flags(*arguments: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_arguments(parser)
    return given_flags(parser.parse_args(spell(arguments, parser)))


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "headrace.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["-a", "::1", "-p", "-1"], {"addr": "::1", "port": -1}),
        (["--net", "h", "--port=5"], {"addr": "h", "port": 5}),
        (["-js", "-sd", "d"], {"jetstream": True, "store_dir": "d"}),
        (["-sd=d", "-m=8222"], {"store_dir": "d", "http_port": 8222}),
        (["--store_dir", "d", "--http_port", "1"], {"store_dir": "d", "http_port": 1}),
        (["--user", "u", "--pass", "p"], {"user": "u", "pass": "p"}),
        (["--auth", "t", "-D", "-V"], {"auth": "t", "debug": True, "trace": True}),
        (["-DV"], {}),
        (["--pin_handover", "immediate"], {"pin_handover": "immediate"}),
        (["-port", "5", "-name=n", "--sd=d"], {"port": 5, "server_name": "n", "store_dir": "d"}),
        (["-js=false", "--D=true", "-tls=t"], {"jetstream": False, "debug": True, "tls": True}),
        (["-user", "-js", "-DVV"], {"user": "-js"}),
        (["-P", "p", "-l=x", "-T=false"], {"pid_file": "p", "log_file": "x", "logtime": False}),
        (["-cluster_name", "c", "--routes=a,b", "-s", "-p", "1"], {"port": 1}),
        (["--sync=interval:0.1", "--insecure"], {"sync": "interval:0.1", "insecure": True}),
    ],
)
def test_flags_are_those_a_nats_user_types(arguments: list[str], values: dict[str, Any]) -> None:
    assert flags(*arguments) == values


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["-p"], "argument -p/--port: expected one argument"),
        (["-p", "x"], "argument -p/--port: invalid int value: 'x'"),
        (["-js=maybe"], "-js=maybe: accepted after '=' are true and false"),
        (["-ms", "1"], "no flag -ms; --help lists those there are"),
        (["--nonsense=1"], "no flag --nonsense; --help"),
    ],
)
def test_a_wrong_flag_is_named(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        flags(*arguments)
    assert caught.value.code == 2
    assert complaint in capsys.readouterr().err


def test_nothing_given_is_the_usual_port_on_loopback() -> None:
    options = broker_options({})
    assert (options.host, options.port, options.jetstream) == ("127.0.0.1", 4222, True)
    assert options.store_dir is None
    assert options.sync == "always"


def test_a_file_has_every_setting(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        addr = "0.0.0.0"
        port = 4333
        store_dir = "data"
        tlscert = "a.pem"
        tlskey = "a.key"
        tls_handshake_first = true
        max_payload = 100
        max_pending = 1000
        max_connections = 3
        ping_interval = 5
        auth_timeout = 0.5
        users = [{user = "u", pass = "p"}]
        """,
    )
    options = broker_options(read_file(path, {}).values)
    assert (options.host, options.port, options.store_dir) == ("0.0.0.0", 4333, "data")
    assert options.users == [User("u", "p")]
    assert options.tls is not None
    assert options.tls.handshake_first
    assert (options.max_payload, options.outbound_bytes_max) == (100, 1000)
    assert (options.connections_max, options.ping_interval, options.auth_timeout) == (3, 5, 0.5)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("port = 'x'", "port: 'x' is not accepted; it must be a whole number"),
        ("port = true", "port: True is not accepted; it must be a whole number"),
        ("addr = ''", "addr: '' is not accepted; it must be a non-empty text"),
        ("jetstream = 1", "jetstream: 1 is not accepted; it must be true or false"),
        ("ping_interval = 0", "ping_interval: 0 is not accepted; it must be a number of seconds"),
        ("sync = 'never'", "sync: 'never' is not accepted; it must be 'always'"),
        ("users = 1", "users: users: not accepted; it must be a list of maps"),
        ("users = [{pass = 'u'}]", "users[0]: users: an entry needs a user and a password"),
        ("pass = 1", "pass: is not accepted; it must be a non-empty text"),
        ("x = 1\n", "no setting 'x'; accepted are addr, port"),
        ("port = ", "not a TOML file"),
    ],
)
def test_a_wrong_file_is_told_where_and_what_is_accepted(
    tmp_path: Path, text: str, complaint: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(
        ConfigurationError, match=re.escape(f"{path}") + "(:1)?: " + re.escape(complaint)
    ):
        read_file(path, {})


def test_a_wrong_secret_is_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_file(write(tmp_path, "auth = 12345"), {})
    assert "12345" not in str(caught.value)


def test_every_setting_is_explained_and_named_once() -> None:
    assert all(setting.help for setting in SETTINGS)
    keys = [setting.key for setting in SETTINGS]
    assert len(keys) == len(set(keys))


def test_the_documentation_lists_every_setting_with_its_flags() -> None:
    text = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text()
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| ")]
    documented = {row[2].strip().strip("`"): row[1].split() for row in rows if len(row) == 7}
    for setting in SETTINGS:
        flags = [f"`{flag}`" for flag in setting.flags] or ["–"]
        assert documented[setting.key] == flags


@pytest.mark.parametrize(
    ("name", "text", "place", "said"),
    [
        ("a.toml", "addr = '::1'\n\nprot = 1\n", ":3", "no setting 'prot'; did you mean 'port'?"),
        ("a.toml", "port = 1\nmax_paylod = 5\n", ":2", "did you mean 'max_payload'?"),
        ("a.toml", "addr = '::1'\nport = 'x'\n", ":2", "port: 'x' is not accepted"),
        ("a.toml", "[accounts.A]\njetstreem = true\n", ":2", "did you mean 'jetstream'?"),
        ("a.conf", "port: 1\n\nmax_paylod: 5\n", ":3:1", "did you mean 'max_payload'?"),
        ("a.conf", "jetstream { stor_dir: x }", ":1:13", "did you mean 'store_dir'?"),
        ("a.conf", "accounts { A { jetstreem: on } }", ":1:16", "did you mean 'jetstream'?"),
    ],
)
def test_a_misspelt_setting_is_shown_with_its_line_and_the_nearest_name(
    tmp_path: Path, name: str, text: str, place: str, said: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        read_file(file, {})
    assert str(caught.value).startswith(f"{file}{place}: ")
    assert said in str(caught.value)


def test_a_misspelt_flag_is_met_with_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--http_prot", "1"])
    assert "no flag --http_prot; did you mean --http_port?" in capsys.readouterr().err
