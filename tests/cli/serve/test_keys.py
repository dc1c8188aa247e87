"""Users with keys and tokens: our client and nats-py log in to both servers, strangers to none."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest

import peers
from headrace import AuthorizationError, connect
from headrace.broker.core.auth.authentication import User
from headrace.broker.server import Broker, BrokerOptions
from headrace.cli.serve.config import broker_options, read_file
from headrace.errors import ConfigurationError
from token_forge import Key, credentials, token

OPERATOR, SYSTEM, ACCOUNT, OTHER = Key("O"), Key("A"), Key("A"), Key("A")
USER, STRANGER = Key("U"), Key("U")
STREAMS = {"mem_storage": -1, "disk_storage": -1, "streams": 2, "consumer": -1, "conn": -1,
           "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1,
           "wildcards": True}  # fmt: skip
FREE = {"subs": -1, "data": -1, "payload": -1}
PLAIN = {**STREAMS, "mem_storage": 0, "disk_storage": 0}

KEYS_CONF = f"""
accounts {{ A {{ users: [ {{ nkey: {USER.public},
                             permissions {{ publish {{ deny: "secret" }} }} }} ] }} }}
"""


def _trust_conf(directory: Path, store: Path) -> str:
    (directory / "operator.jwt").write_text(
        "-----BEGIN-----\n" + token(OPERATOR, OPERATOR, "operator") + "\n------END------\n"
    )
    accounts = {
        SYSTEM.public: token(OPERATOR, SYSTEM, "account", limits=PLAIN),
        ACCOUNT.public: token(OPERATOR, ACCOUNT, "account", limits=STREAMS),
        OTHER.public: token(OPERATOR, OTHER, "account", limits=PLAIN),
    }
    preload = "\n".join(f"  {key}: {text}" for key, text in accounts.items())
    return f"""
        operator: "{directory}/operator.jwt"
        system_account: {SYSTEM.public}
        resolver: MEMORY
        resolver_preload {{
        {preload}
        }}
        jetstream {{ store_dir: "{store}" }}
        """


Serve = Callable[[str], peers.ServerProcess]


@pytest.fixture(params=["headrace", pytest.param("nats-server", marks=pytest.mark.peer)])
def serve(
    request: pytest.FixtureRequest, nats_server: Callable[..., peers.ServerProcess], tmp_path: Path
) -> Iterator[Serve]:
    started: list[peers.ServerProcess] = []

    def start(config: str) -> peers.ServerProcess:
        if request.param == "nats-server":
            return nats_server(config=config)
        file = tmp_path / "same.conf"
        file.write_text(config)
        started.append(peers.start_headrace(tmp_path / "ours", flags=["-c", str(file)]))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def _creds(directory: Path, user: Key, text: str) -> str:
    path = directory / f"{user.public[:8]}.creds"
    path.write_text(credentials(text, user))
    return str(path)


async def test_a_user_with_a_key_signs_in(serve: Serve) -> None:
    server = serve(KEYS_CONF)
    async with connect(server.url, nkey_seed=USER.seed) as client:
        subscription = await client.subscribe("x")
        await client.publish("x", b"hello")
        assert (await subscription.next(timeout=5)).payload == b"hello"
    with pytest.raises(AuthorizationError):
        await connect(server.url, nkey_seed=STRANGER.seed)
    with pytest.raises(AuthorizationError):
        await connect(server.url)


async def test_users_of_an_account_sign_in_with_their_tokens(serve: Serve, tmp_path: Path) -> None:
    server = serve(_trust_conf(tmp_path, tmp_path / "store"))
    creds = _creds(tmp_path, USER, token(ACCOUNT, USER, "user", **FREE))
    async with connect(server.url, credentials_file=creds) as client:
        stream = await client.jetstream().create_stream(name="S", subjects=["s"])
        assert (await client.jetstream().publish("s", b"x")).seq == 1
        assert stream.name == "S"
    forged = _creds(tmp_path, STRANGER, token(Key("A"), STRANGER, "user", **FREE))
    with pytest.raises(AuthorizationError):
        await connect(server.url, credentials_file=forged)


async def test_nats_py_signs_in_with_a_token(serve: Serve, tmp_path: Path) -> None:
    server = serve(_trust_conf(tmp_path, tmp_path / "store"))
    jwt = token(OTHER, USER, "user", **FREE, pub={"deny": ["secret"]}).encode()
    refused: asyncio.Queue[Exception] = asyncio.Queue()

    async def on_error(error: Exception) -> None:
        refused.put_nowait(error)

    async with asyncio.timeout(10):
        client = await nats.connect(
            server.url,
            user_jwt_cb=lambda: bytearray(jwt),
            signature_cb=lambda nonce: USER.sign_text(nonce).encode(),
            error_cb=on_error,
        )
        subscription = await client.subscribe("x")
        await client.publish("x", b"hello")
        assert (await subscription.next_msg()).data == b"hello"
        await client.publish("secret", b"x")
        assert "permissions violation for publish" in str(await refused.get()).lower()
        await client.close()


@pytest.mark.peer
async def test_nats_server_says_what_we_say_when_a_token_ends(
    nats_server: Callable[..., peers.ServerProcess], tmp_path: Path
) -> None:
    server = nats_server(config=_trust_conf(tmp_path, tmp_path / "store"))
    jwt = token(OTHER, USER, "user", **FREE, exp=int(time.time()) + 2)
    reader, writer = await asyncio.open_connection(server.host, server.port)
    async with asyncio.timeout(5):
        info = json.loads((await reader.readline()).partition(b" ")[2])
        document = {"jwt": jwt, "sig": USER.sign_text(info["nonce"]), "verbose": False}
        writer.write(b"CONNECT %b\r\nPING\r\n" % json.dumps(document).encode())
        heard = [line async for line in reader]
    writer.close()
    assert b"PONG\r\n" in heard
    assert heard[-1] == b"-ERR 'User Authentication Expired'\r\n"


def test_a_trust_that_is_not_one_is_refused(tmp_path: Path) -> None:
    def refusal(text: str) -> str:
        path = tmp_path / "nats.conf"
        path.write_text(text)
        with pytest.raises(ConfigurationError) as caught:
            broker_options(read_file(path, {}).values).check()
        return str(caught.value)

    operator = token(OPERATOR, OPERATOR, "operator")
    assert "resolver: of no use without an operator" in refusal("resolver: MEMORY")
    assert "needs accounts" in refusal(f"operator: {operator}")
    assert "accepted is MEMORY" in refusal(f"operator: {operator}\nresolver: URL(http://x)")
    assert "cannot read the file" in refusal("operator: nowhere\nresolver_preload {}")
    assert "operator and users are given" in refusal(
        f"operator: {operator}\nresolver_preload {{}}\n"
        "authorization { users: [{user: a, password: b}] }"
    )


def test_an_operators_file_is_found_from_the_working_directory_or_beside_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf").mkdir()
    here, file = tmp_path / "op.jwt", tmp_path / "conf" / "nats.conf"
    file.write_text("operator: op.jwt\nresolver_preload {}")
    monkeypatch.chdir(tmp_path)
    for place in (here.parent / "conf" / "op.jwt", here):
        place.write_text(token(OPERATOR, OPERATOR, "operator", name=place.parent.name))
        trust = read_file(file, {}).values["trust"]
        assert trust.operators == (place.read_text(),)


def test_without_the_extra_users_with_keys_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    options: Any = BrokerOptions(users=[User("u", nkey=USER.public)])
    with pytest.raises(ConfigurationError, match=r"pip install 'headrace\[nkeys\]'"):
        Broker(options)
