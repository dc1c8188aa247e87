"""Ways to log in and to reach JetStream, on the reference server."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import peers
from certificates import self_signed
from headrace.client.net.handshake import Handshake
from headrace.errors import AuthorizationError, ConfigurationError, ConnectFailedError
from headrace.spark.links import link as link_module
from headrace.spark.links.control import Control
from headrace.spark.links.link import Link
from headrace.spark.options import parse_options
from headrace.spark.slices import Slice
from headrace.spark.tasks.read_slice import read_slice
from headrace.wire import Parser
from token_forge import Key, credentials, token

pytestmark = pytest.mark.peer
Serve = Callable[..., peers.ServerProcess]
ALL = {"subs": -1, "data": -1, "payload": -1}
ACCOUNT_LIMITS = {
    **ALL, "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1, "conn": -1,
    "imports": -1, "exports": -1, "wildcards": True,
}  # fmt: skip


def reads(server: peers.ServerProcess, **given: str) -> int:
    """Make a stream with two messages, if there is none, and read it as a task does. How many rows?"""
    options = parse_options({"stream": "S", "servers": server.url, **given})
    link = Link.open(options.connection)
    try:
        link.request(link.api("STREAM", "CREATE", "S"), b'{"name":"S","subjects":["s"]}')
        before = Control(link, "S").head()[0].last_seq
        for _ in range(2):
            link.request("s", b"x")
        piece = Slice(before, before + 2, epoch=Control(link, "S").head()[0].epoch)
    finally:
        link.close()
    return sum(batch.num_rows for batch in read_slice(options, ("sequence", "data"), piece))


def test_a_key_a_domain_and_inboxes_of_ones_own(nats_server: Serve, tmp_path: Path) -> None:
    user, stranger = Key("U"), Key("U")
    server = nats_server(
        jetstream=False,
        config=f"""
        jetstream {{ store_dir: "{tmp_path}/js", domain: hub }}
        authorization {{ users [
            {{ nkey: {user.public}, permissions {{ subscribe: ["_SPARK.>"] }} }}
        ] }}
        """,
    )
    keyed = {"nkeySeed": user.seed, "inboxPrefix": "_SPARK"}
    assert reads(server, **keyed) == 2
    assert reads(server, **keyed, jetstreamDomain="hub") == 2
    assert reads(server, **keyed, jetstreamApiPrefix="$JS.hub.API") == 2
    with pytest.raises(AuthorizationError, match="Permissions"):
        reads(server, nkeySeed=user.seed)
    with pytest.raises(AuthorizationError, match="refused"):
        reads(server, nkeySeed=stranger.seed)


def test_a_credentials_file_or_its_parts(nats_server: Serve, tmp_path: Path) -> None:
    operator, system, account, user = Key("O"), Key("A"), Key("A"), Key("U")
    (tmp_path / "op.jwt").write_text(token(operator, operator, "operator"))
    server = nats_server(
        config=f"""
        operator: "{tmp_path}/op.jwt"
        system_account: {system.public}
        resolver: MEMORY
        resolver_preload {{
            {system.public}: {token(operator, system, "account", limits=ALL)}
            {account.public}: {token(operator, account, "account", limits=ACCOUNT_LIMITS)}
        }}
        """
    )
    jwt = token(account, user, "user", **ALL)
    (tmp_path / "user.creds").write_text(credentials(jwt, user))
    assert reads(server, creds=str(tmp_path / "user.creds")) == 2
    assert reads(server, jwt=jwt, nkeySeed=user.seed) == 2
    with pytest.raises(ConfigurationError, match="credentials file"):
        reads(server, creds=str(tmp_path / "nowhere.creds"))


def test_tls_first_with_a_client_certificate(
    nats_server: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = self_signed(tmp_path, name="spark", alternatives="DNS:broker.example")
    server = nats_server(
        config=f"""tls {{ cert_file: "{cert}", key_file: "{key}", ca_file: "{cert}", verify: true,
                          handshake_first: "300ms" }}"""  # those who wait get its greeting then
    )
    steps: list[tuple[bool, bool]] = []
    take = link_module._take_step

    def spy(sock: socket.socket, parser: Parser, handshake: Handshake, deadline: float) -> None:
        steps.append((handshake.info is None, isinstance(sock, ssl.SSLSocket)))
        take(sock, parser, handshake, deadline)

    monkeypatch.setattr(link_module, "_take_step", spy)
    given = {
        "tlsCa": str(cert),
        "tlsCert": str(cert),
        "tlsKey": str(key),
        "tlsHostname": "broker.example",
    }
    assert reads(server, **given, tlsFirst="true") == 2
    assert steps[0] == (True, True)


def test_a_websocket_is_refused_with_what_is_accepted() -> None:
    with pytest.raises(ConfigurationError, match="accepted: nats:// and tls://"):
        Link.open(parse_options({"stream": "S", "servers": "ws://127.0.0.1:1"}).connection)


@pytest.mark.parametrize(
    ("words", "given", "reason"),
    [
        (
            b'INFO {"tls_available":true}\r\nPING\r\n',
            {"tls": "true"},
            "the server sent bytes between INFO and the TLS handshake",
        ),
        (
            b'INFO {"tls_required":true}\r\n+O',
            {},
            "the server sent bytes between INFO and the TLS handshake",
        ),
        (b"INFO {}\r\n", {"tls": "true"}, "TLS was asked for, and the server does not offer it"),
        (b"INFO {}\r\n-ERR 'Authentication Timeout'\r\n", {}, "Authentication Timeout"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", {}, "unknown protocol operation"),
    ],
)
def test_a_handshake_that_fails_says_why_as_that_of_the_client(
    words: bytes, given: dict[str, str], reason: str
) -> None:
    def serve(listening: socket.socket) -> None:
        accepted, _ = listening.accept()
        with accepted:
            accepted.sendall(words)
            accepted.recv(1024)  # what it says, or that it leaves

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        url = f"127.0.0.1:{listening.getsockname()[1]}"
        options = parse_options({"stream": "S", "servers": url, **given})
        with pytest.raises(ConnectFailedError, match=reason):
            Link.open(options.connection)
        thread.join()


def test_who_a_url_names_comes_before_who_the_options_name(nats_server: Serve) -> None:
    server = nats_server(
        config="""accounts {
            A { jetstream: enabled, users: [{ user: a, password: one }] }
            B { users: [{ user: b, password: two }] }
        }"""
    )
    host = server.url.removeprefix("nats://")
    given = {"stream": "S", "servers": f"nats://a:one@{host}", "user": "b", "password": "two"}
    link = Link.open(parse_options(given).connection)
    try:
        assert b'"error":' not in link.request(link.api("INFO")).payload
    finally:
        link.close()
