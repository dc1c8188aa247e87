"""What tokens say, each field alone and with every value that changes it: who is let in, and what it may do.

On both servers, by the same configuration. Where they differ Headrace is stricter, and ``STRICTER`` says why.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import peers
from token_forge import Key, token

OPERATOR, OPERATORS_KEY, ACCOUNT, OTHER, SIGNER, USER = map(Key, "OOAAAU")
ANY = dict.fromkeys(["subs", "data", "payload", "imports", "exports", "conn", "leaf"], -1) | {
    "wildcards": True
}
UNLIMITED = {"subs": -1, "data": -1, "payload": -1}
ALL_DAY = [{"start": "00:00:00", "end": "23:59:59"}]
USERS: dict[str, list[Any]] = {
    "pub": [
        {}, {"allow": ["a.>"]}, {"deny": ["a.>"]}, {"allow": []}, {"allow": ["a..b"]}, {"allow": ["a q"]},
    ],
    "sub": [{}, {"allow": ["a.>"]}, {"deny": ["a.>"]}, {"allow": ["a.x q"]}, {"deny": ["a.x q"]}],
    "resp": [{}, {"max": 1, "ttl": 1}, {"max": 0}, {"max": -1, "ttl": -1}],
    "src": ["", "127.0.0.0/8", "10.0.0.0/8", ["127.0.0.0/8"], [], ["10.0.0.0/8"], ["127.0.0.1"]],
    "times": [[], ALL_DAY, [{"start": "00:00:00", "end": "00:00:00"}]],
    "times_location": ["", "Europe/Berlin"],
    "subs": [1, -1],
    "data": [0, 10, -1],
    "payload": [0, 10, -1],
    "bearer_token": [False, True],
    "proxy_required": [False, True],
    "allowed_connection_types": [
        [], ["STANDARD"], ["standard"], ["WEBSOCKET"], ["MQTT"], ["NONSENSE"], ["NONSENSE", "STANDARD"],
    ],
    "issuer_account": ["", ACCOUNT.public, OTHER.public],
    "tags": [["x"]],
    "version": [1, 2, 3],
}  # fmt: skip
STRICTER = {
    f"user times={ALL_DAY}": "times of the day are not supported",
    f"template times={ALL_DAY}": "times of the day are not supported",
}


def operator(**content: Any) -> str:
    return token(OPERATOR, OPERATOR, "operator", **content)


def account(signer: Key = OPERATOR, **content: Any) -> str:
    return token(signer, ACCOUNT, "account", **{"limits": ANY, **content})


def user(**content: Any) -> str:
    return token(ACCOUNT, USER, "user", **{**UNLIMITED, **content})


def scoped(**content: Any) -> str:
    return token(SIGNER, USER, "user", **{"issuer_account": ACCOUNT.public, **content})


def scope(**template: Any) -> dict[str, Any]:
    template = {**UNLIMITED, **template}
    return {"kind": "user_scope", "key": SIGNER.public, "role": "r", "template": template}


@contextmanager
def both(
    directory: Path, operator: str, account: str
) -> Iterator[tuple[peers.ServerProcess | None, ...]]:
    """Servers of this configuration; None for one that does not start with it."""
    text = (
        f'operator: "{operator}"\nresolver: MEMORY\n'
        f'resolver_preload {{ {ACCOUNT.public}: "{account}" }}\n'
    )
    directory.mkdir()
    file = directory / "ours.conf"
    file.write_text(text)
    with ExitStack() as stack:
        found: list[peers.ServerProcess | None] = []
        for kind in ("nats-server", "headrace"):
            place = directory / kind
            try:
                if kind == "nats-server":
                    server = peers.start_nats_server(place, config=text, jetstream=False)
                else:
                    server = peers.start_headrace(place, flags=["-c", str(file)], jetstream=False)
            except RuntimeError:
                found.append(None)
            else:
                stack.callback(server.stop)
                found.append(server)
        yield tuple(found)


def outcome(server: peers.ServerProcess | None, jwt: str, *, signs: bool) -> str:
    """Whether a token lets its user in, and what it hears of what it sends to itself then."""
    if server is None:
        return "refused"
    try:
        return _talk(server, jwt, signs=signs)
    except OSError:
        return "refused"


def _talk(server: peers.ServerProcess, jwt: str, *, signs: bool) -> str:
    with socket.create_connection((server.host, server.port), timeout=5) as connection:
        lines = connection.makefile("rb")
        nonce = json.loads(lines.readline()[5:])["nonce"]
        options = {"verbose": False, "pedantic": False, "headers": True, "jwt": jwt}
        if signs:
            options["sig"] = USER.sign_text(nonce)
        connection.sendall(b"CONNECT %b\r\nPING\r\n" % json.dumps(options).encode())
        if not lines.readline().startswith(b"PONG"):
            return "refused"
        connection.sendall(
            b"SUB a.x 1\r\nSUB b.x 2\r\nSUB a.x q 3\r\n"
            b"PUB a.x 1\r\nx\r\nPUB b.x 1\r\nx\r\nPUB a.x 50\r\n%b\r\nPING\r\n" % (b"y" * 50)
        )
        heard: list[str] = []
        for line in lines:
            if line.startswith(b"PONG"):
                return ", ".join(sorted(heard))
            if line.startswith(b"-ERR"):
                heard.append(line.decode()[6:40])
            elif line.startswith(b"MSG"):
                heard.append(" ".join(line.decode().split()[1:3]))
                lines.readline()
        return "hung up on: " + ", ".join(sorted(heard))


def str_without_keys(content: object) -> str:
    """What names a case: keys are others each time."""
    return re.sub("[AOU][A-Z2-7]{55}", "KEY", str(content))


Logins = Sequence[tuple[str, str, bool]]


def compare(servers: tuple[peers.ServerProcess | None, ...], logins: Logins) -> None:
    differences = {}
    for name, jwt, signs in logins:
        theirs, ours = (outcome(server, jwt, signs=signs) for server in servers)
        if name in STRICTER:
            assert ours == "refused" != theirs, name
        elif theirs != ours:
            differences[name] = {"nats-server": theirs, "headrace": ours}
    assert not differences


@pytest.mark.peer
def test_fields_of_users_and_of_users_of_a_scope(tmp_path: Path) -> None:
    logins = []
    for field, values in USERS.items():
        for value in values:
            for signs in (True, False):
                at = "" if signs else " unsigned"
                change = {field: value}
                logins.append((f"user {field}={value}{at}", user(**change), signs))
                logins.append((f"scoped {field}={value}{at}", scoped(**change), signs))
    logins.append(("scoped", scoped(), True))
    logins = [(name, jwt, signs) for name, jwt, signs in logins if signs or "bearer" in name]
    keys = [scope(pub={"allow": ["a.>"]})]
    with both(tmp_path / "servers", operator(), account(signing_keys=keys)) as servers:
        compare(servers, logins)


TEMPLATES: list[dict[str, Any]] = [
    {"pub": {"deny": ["a.>"]}},
    {"src": "10.0.0.0/8"},
    {"times": ALL_DAY},
    {"subs": 1},
    {"payload": 10},
    {"bearer_token": True},
    {"allowed_connection_types": ["WEBSOCKET"]},
]


@pytest.mark.peer
@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: next(iter(template)))
def test_fields_of_scopes(template: dict[str, Any], tmp_path: Path) -> None:
    name = f"template {next(iter(template))}={next(iter(template.values()))}"
    keys = [scope(**template)]
    with both(tmp_path / "servers", operator(), account(signing_keys=keys)) as servers:
        compare(servers, [(name, scoped(), True), (f"{name} unsigned", scoped(), False)])


ACCOUNTS: list[dict[str, Any]] = [
    {"limits": {**ANY, "subs": 1}},
    {"limits": {**ANY, "conn": 0}},
    {"limits": {**ANY, "payload": 10}},
    {"limits": {**ANY, "disallow_bearer": True}},
    {"limits": {**ANY, "exports": 0}, "exports": [{"subject": "a.x", "type": "stream"}]},
    {"limits": {**ANY, "exports": 1, "wildcards": False}, "exports": [{"subject": "a.>", "type": "stream"}]},
    {"default_permissions": {"sub": {"allow": ["b.>"]}}},
    {"default_permissions": {"resp": {}}},
    {"revocations": {"*": 1 << 40}},
    {"authorization": {"auth_users": [Key("U").public]}},
    {"exports": [{"subject": "a.*", "type": "service", "account_token_position": 5}]},
]  # fmt: skip


@pytest.mark.peer
@pytest.mark.parametrize("content", ACCOUNTS, ids=str_without_keys)
def test_fields_of_accounts(content: dict[str, Any], tmp_path: Path) -> None:
    with both(tmp_path / "servers", operator(), account(**content)) as servers:
        bearer = user(bearer_token=True)
        compare(servers, [("user", user(), True), ("bearer", bearer, False)])


OPERATORS: list[dict[str, Any]] = [
    {},
    {"signing_keys": [OPERATORS_KEY.public]},
    {"signing_keys": [OPERATORS_KEY.public], "strict_signing_key_usage": True},
    {"assert_server_version": "2.0.0"},
    {"assert_server_version": "9.0.0"},
    {"assert_server_version": "x"},
]


@pytest.mark.peer
@pytest.mark.parametrize("content", OPERATORS, ids=str_without_keys)
@pytest.mark.parametrize("signer", [OPERATOR, OPERATORS_KEY], ids=["itself", "its key"])
def test_fields_of_operators(content: dict[str, Any], signer: Key, tmp_path: Path) -> None:
    signed = account(signer, signing_keys=[SIGNER.public])
    with both(tmp_path / "servers", operator(**content), signed) as servers:
        logins = [("by the account", user(), True), ("by its key", scoped(**UNLIMITED), True)]
        compare(servers, logins)
