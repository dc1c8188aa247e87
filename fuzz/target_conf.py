"""Configuration files, nats-server's form and TOML: settings, or a ConfigurationError that names a place."""

from __future__ import annotations

import random
import tomllib
from pathlib import Path

from headrace.broker.server.config.syntax import parse_config
from headrace.cli.serve.config import broker_options, settings_of
from headrace.cli.serve.nats import read_nats_file
from headrace.errors import ConfigurationError
from mutation import Target

FILE = Path("/nonexistent/fuzz.conf")

CONF = [
    b'port: 4222\nhost = "127.0.0.1"\nmax_payload: 1MB\n# a comment\nmax_connections 100\n',
    b"accounts { A { jetstream: {max_mem: 1G}, users: [{user: a, password: p}] }, B {} }\n",
    b'authorization { users = [ {user: a, password: "p", permissions: {publish: ["a.>", b]}} ] }\n',
    b"jetstream { store_dir: /tmp/x, max_file: 10GB, sync_interval: always }\n",
    b"P = 5222\nport: $P\nx: (\n block\n)\nwebsocket { port: 80, no_tls: true }\n",
    b"accounts: { A: { exports: [{service: a.b}], imports: [{stream: {account: B, subject: c}}] } }\n",
    b"tls { cert_file: ./c.pem, key_file: ./k.pem, verify: true, timeout: 2 }\n",
    b"include ./other.conf\nping_interval: '2m'\nwrite_deadline: \"10s\"\n",
]
CONF_TOKENS = [
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b"=",
        b",",
        b"\n",
        b'"',
        b"'",
        b"(",
        b")",
        b"#",
        b"//",
        b"$",
        b";",
    ),
    *(
        b"include ",
        b"true",
        b"-1",
        b"1k",
        b"1e9",
        b"99999999999999999999",
        b"null",
        b"\xff",
        b"\\x",
    ),
    *(b"users", b"accounts", b"jetstream", b"permissions", b"deny", b"[" * 300, b"{a" * 300),
]

TOML = [
    b'port = 4222\nserver_name = "mill"\nmax_payload = "1MiB"\n',
    b'[[users]]\nuser = "a"\npassword = "p"\n[users.permissions]\npublish = ["a.>"]\n',
    b'[accounts.A]\nusers = [{user = "a", password = "p"}]\n[accounts.A.jetstream]\nmax_mem = "1GiB"\n',
    b'store_dir = "/tmp/x"\nsync = "interval:1s"\nmax_file_store = 10_000\njetstream = true\n',
    b'[tls]\ncert = "c"\nkey = "k"\n[websocket]\nport = 8080\n',
]
TOML_TOKENS = [
    *(
        b"[",
        b"]",
        b"[[",
        b"]]",
        b"=",
        b'"',
        b"'",
        b"\n",
        b"{",
        b"}",
        b".",
        b",",
        b"1979-05-27",
        b"inf",
    ),
    *(
        b"true",
        b"-1",
        b"1e400",
        b"99999999999999999999",
        b"\xff",
        b"\\u0000",
        b'"""',
        b"0x",
        b"users",
    ),
]


def no_such_file(name: str, including: str) -> tuple[str, str]:
    raise FileNotFoundError(name)


def check_conf(data: bytes, rng: random.Random) -> None:
    """Raise what the reader of nats-server's files raises beside ConfigurationError."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return  # refused before it is read
    for read in (
        lambda: parse_config(text, str(FILE), {}, no_such_file),
        lambda: broker_options(read_nats_file(FILE, text, {}).values),
    ):
        try:
            read()
        except ConfigurationError as error:
            assert str(error), "a refusal without a word"


def check_toml(data: bytes, rng: random.Random) -> None:
    """Raise what the reader of TOML raises beside ConfigurationError."""
    try:
        document = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        return
    try:
        broker_options(settings_of(document, FILE))
    except ConfigurationError as error:
        assert str(error), "a refusal without a word"


TARGETS = (
    Target("conf", CONF, CONF_TOKENS, check_conf),
    Target("toml", TOML, TOML_TOKENS, check_toml, joined_max=2),
)
