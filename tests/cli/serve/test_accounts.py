"""Accounts in files: read alike in both formats, and served as nats-server serves them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import peers
from conformance.driver import Session, run
from conformance.steps import api, connect, drain, raw, request
from headrace.broker.core.auth.authentication import User
from headrace.broker.core.options import AccountOptions, Export, Import, JetStreamLimits
from headrace.cli.serve.config import broker_options, read_file
from headrace.errors import ConfigurationError

CONFIG = """
accounts {
  A { users: [ {user: a, password: a} ]
      jetstream: { max_mem: 1MB, max_file: 2MB, max_streams: 2, max_consumers: 1 }
      exports: [ {service: "svc.*"}, {stream: "pub.>"}, {service: "only", accounts: [B]} ] }
  B { users: [ {user: b, password: b} ], jetstream: enabled
      imports: [ {service: {account: A, subject: "svc.*"}, to: "my.*"}
                 {stream: {account: A, subject: "pub.>"}, prefix: "froma"} ] }
  C { users: [ {user: c, password: c} ] }
}
no_auth_user: c
"""


def test_both_formats_say_the_same(tmp_path: Path) -> None:
    conf = tmp_path / "nats.conf"
    conf.write_text(CONFIG)
    toml = tmp_path / "headrace.toml"
    toml.write_text(
        """
        no_auth_user = "c"
        users = [ {user = "a", pass = "a", account = "A"}, {user = "b", pass = "b", account = "B"},
                  {user = "c", pass = "c", account = "C"} ]
        [accounts.A]
        jetstream = {max_mem = 1048576, max_file = 2097152, max_streams = 2, max_consumers = 1}
        exports = [{service = "svc.*"}, {stream = "pub.>"}, {service = "only", accounts = ["B"]}]
        [accounts.B]
        jetstream = true
        imports = [{service = {account = "A", subject = "svc.*"}, to = "my.*"},
                   {stream = {account = "A", subject = "pub.>"}, prefix = "froma"}]
        [accounts.C]
        """
    )
    one, two = (broker_options(read_file(path, {}).values) for path in (conf, toml))
    assert list(one.accounts) == list(two.accounts)
    assert list(one.users) == list(two.users)
    assert one.no_auth_user == two.no_auth_user == "c"
    one.check()
    assert list(one.accounts) == [
        AccountOptions(
            name="A",
            jetstream=JetStreamLimits(
                max_memory=1 << 20, max_storage=2 << 20, max_streams=2, max_consumers=1
            ),
            exports=(
                Export(kind="service", subject=b"svc.*"),
                Export(kind="stream", subject=b"pub.>"),
                Export(kind="service", subject=b"only", accounts=frozenset(["B"])),
            ),
        ),
        AccountOptions(
            name="B",
            jetstream=JetStreamLimits(),
            imports=(
                Import(kind="service", account="A", subject=b"svc.*", local=b"my.*"),
                Import(kind="stream", account="A", subject=b"pub.>", local=b"froma.pub.>"),
            ),
        ),
        AccountOptions(name="C"),
    ]
    assert list(one.users) == [User(name, name, account=name.upper()) for name in "abc"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("accounts: 1", ":1:1: accounts: not accepted; it must be a map"),
        ("accounts { A { nkey: x } }", ":1:16: nkey: not supported in an account; accepted are"),
        ("accounts { A { jetstream: 3 } }", "jetstream: must be true, false, enabled, disabled"),
        ("accounts { A { jetstream { max_fle: 3 } } }", "max_fle: no limit of an account's"),
        ("accounts { A { exports: {} } }", "exports: not accepted; it must be a list"),
        ("accounts { A { exports: [{}] } }", "each entry needs either stream or service"),
        ("accounts { A { exports: [{service: a, token_req: true}] } }", "token_req: not supported"),
        ("accounts { A { exports: [{service: a, response: no}] } }", "must be singleton, stream"),
        ("accounts { A { imports: [{service: {account: B}}] } }", "needs both account and subject"),
        (
            "accounts { A { imports: [{service: {account: B, subject: b}, prefix: p}] } }",
            "prefix: is for streams",
        ),
        (
            "accounts { A { imports: [{service: {account: B, subject: b}}] } }",
            "there is no account 'B'",
        ),
        ("accounts { A { users: [{user: a, password: a}] }, B { users: [{user: a, password: b}] } }",
         "'a' is listed twice"),
        ("accounts { A { users: [{user: a, password: 1}] } }", "must be a text, in quotes"),
        ("trusted_keys: UAB, resolver_preload {}", "each must be an operator's key"),
        ("trusted_keys: 7, resolver_preload {}", "each must be an operator's key"),
        ("trusted_keys: OAB, operator: OAB", "given beside an operator"),
        ("trusted: [OAB]", "trusted_keys: needs accounts"),
        ("accounts { $SYS { jetstream: on } }", "the system account, which cannot have JetStream"),
        ("no_auth_user: x", "no_auth_user: there are no users"),
        ("no_auth_user: x, accounts { A { users: [{user: a, password: b}] } }",
         "there is no user 'x'; accepted is one of ['a']"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_accounts_is_told(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "nats.conf"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=re.escape(complaint)):
        broker_options(read_file(path, {}).values).check()


def _user(name: str) -> Callable[[Session], None]:
    return connect(name, user=name, **{"pass": name})


def _stream(name: str, **config: Any) -> dict[str, Any]:
    return {"name": name, "subjects": [name.lower()], **config}


SCENARIOS = {
    "who has no credentials": [raw("PING\n", on="x"), drain("x"), request("$JS.API.INFO", on="x")],
    "limits of an account": [
        _user("a"),
        api("STREAM.CREATE.S", _stream("S"), on="a"),
        api("STREAM.CREATE.M", _stream("M", storage="memory", max_bytes=2 << 20), on="a"),
        api("STREAM.CREATE.M", _stream("M", max_bytes=3 << 20), on="a"),
        api("STREAM.CREATE.M", _stream("M", storage="memory", max_bytes=900_000), on="a"),
        api("STREAM.CREATE.N", _stream("N"), on="a"),
        *[request("s", "x" * 600_000, on="a")] * 4,
        *[
            api(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": {"name": name}}, on="a")
            for name in ("C", "D")
        ],
        request("$JS.API.INFO", on="a"),
    ],
    "names of two accounts": [
        _user("a"),
        _user("b"),
        api("STREAM.CREATE.S", _stream("S"), on="a"),
        api("STREAM.NAMES", on="b"),
        api("STREAM.CREATE.S", _stream("S", max_msgs=3), on="b"),
        request("s", "x", on="b"),
        api("STREAM.NAMES", on="a"),
    ],
    "a stream of another account": [
        _user("a"),
        _user("b"),
        raw("SUB froma.> 1\n", on="b"),
        drain("b"),
        raw("PUB pub.x 5\nhello\n", on="a"),
        raw("PUB froma.pub.y 4\nours\n", on="a"),
        drain("a"),
        drain("b"),
    ],
    "a service nobody offers": [_user("a"), _user("b"), request("my.x", "q", on="b")],
    "a service that is not imported": [_user("c"), request("svc.x", "q", on="c")],
}


@pytest.mark.peer
@pytest.mark.parametrize("name", SCENARIOS)
def test_accounts_are_served_alike(
    nats_server: Callable[..., peers.ServerProcess], tmp_path: Path, name: str
) -> None:
    theirs = nats_server(config=CONFIG + f'jetstream {{ store_dir: "{tmp_path}/theirs" }}\n')
    file = tmp_path / "same.conf"
    file.write_text(CONFIG + f'jetstream {{ store_dir: "{tmp_path}/ours" }}\n')
    ours = peers.start_headrace(tmp_path / "headrace", flags=["-c", str(file)])
    try:
        heard = [run(tuple(SCENARIOS[name]), server.host, server.port) for server in (ours, theirs)]
    finally:
        ours.stop()
    assert [_comparable(line) for line in heard[0]] == [_comparable(line) for line in heard[1]]


def _comparable(line: str) -> str:
    """Without what tells the servers apart on purpose: their level, and who leads a stream."""
    return re.sub(r'"level": ?\d+', '"level":0', line)
