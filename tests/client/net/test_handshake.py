"""The pure words of the handshake."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.net.handshake import (
    Credentials,
    Handshake,
    ServerAddress,
    ServerInfo,
    connect_command,
    parse_info,
    parse_server,
    parse_servers,
)
from headrace.errors import (
    AuthorizationError,
    ConfigurationError,
    ConnectFailedError,
    ProtocolError,
    ServerError,
)
from headrace.wire.parser import Parser


@pytest.mark.parametrize(
    ("url", "host", "port", "tls"),
    [
        ("nats://example.org", "example.org", 4222, False),
        ("nats://127.0.0.1:4333", "127.0.0.1", 4333, False),
        ("tls://example.org:1", "example.org", 1, True),
        ("tcp://example.org", "example.org", 4222, False),
        ("example.org", "example.org", 4222, False),
        (" example.org:99 ", "example.org", 99, False),
        ("nats://[::1]:4222", "::1", 4222, False),
        ("nats://example.org:4222/", "example.org", 4222, False),
    ],
)
def test_a_server_url_names_host_port_and_tls(url: str, host: str, port: int, tls: bool) -> None:
    server = parse_server(url)
    assert (server.host, server.port, server.tls) == (host, port, tls)


def test_a_url_carries_user_and_password_percent_decoded() -> None:
    assert parse_server("nats://u%40x:p%3Aw@h").credentials == Credentials("u@x", "p:w")


def test_a_url_with_one_word_before_the_at_carries_a_token() -> None:
    assert parse_server("nats://s3cret@h").credentials == Credentials(token="s3cret")


@pytest.mark.parametrize(
    "url",
    ["http://h", "nats://", "nats://h:notaport", "nats://h:99999", "nats://h/path", "nats://[::1"],
)
def test_a_bad_url_is_refused_with_what_is_accepted(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"nats://"):
        parse_server(url)


@given(
    st.text(alphabet="abcXYZ019", min_size=6), st.sampled_from(["ftp://{}@h", "nats://u:{}@h:x"])
)
def test_no_error_text_and_no_repr_shows_a_secret(secret: str, shape: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_server(shape.format(secret))
    assert secret not in str(caught.value)
    good = parse_server(f"nats://u:{secret}@host.example")
    assert secret not in repr(good)
    assert secret not in str(good)


def test_several_servers_may_stand_in_one_string_or_in_a_list() -> None:
    assert [s.host for s in parse_servers("nats://a, b:1,")] == ["a", "b"]
    assert [s.host for s in parse_servers(["a,b", "nats://c"])] == ["a", "b", "c"]
    with pytest.raises(ConfigurationError, match="no server"):
        parse_servers([])


def test_connect_asks_for_headers_only_when_the_server_has_them() -> None:
    line = connect_command(ServerInfo(headers=True), Credentials("u", "p"), name="me")
    assert line.startswith(b"CONNECT {")
    assert line.endswith(b"}\r\n")
    document = msgspec.json.decode(line[8:])
    assert document["user"] == "u"
    assert document["pass"] == "p"
    assert document["headers"] is True
    assert document["no_responders"] is True
    assert document["verbose"] is False
    assert "auth_token" not in document
    bare = msgspec.json.decode(connect_command(ServerInfo())[8:])
    assert bare["headers"] is False
    assert bare["no_responders"] is False
    assert "user" not in bare


def test_info_tolerates_fields_it_does_not_know_and_refuses_what_is_not_info() -> None:
    info = parse_info(b'{"server_id":"X","max_payload":7,"brand_new":[1]}')
    assert (info.server_id, info.max_payload) == ("X", 7)
    for document in (b"[]", b'{"brand_new":' * 5000):
        with pytest.raises(ProtocolError, match="INFO"):
            parse_info(document)


def _of_a_server(
    *chunks: bytes, wants_tls: bool | None = False, address: ServerAddress | None = None
) -> tuple[Handshake, bytes]:
    """A handshake that got these chunks, and what it sent."""
    ours = Credentials("us", "ours")
    handshake = Handshake(
        address or ServerAddress("h"), lambda _: ours, is_encrypted=False, wants_tls=wants_tls
    )
    parser, sent = Parser.for_client(), b""
    for chunk in chunks:
        sent += handshake.receive(parser.feed(chunk), parser.held_bytes)
        if handshake.info is not None and b"CONNECT" not in sent:
            sent += handshake.hello()
    return handshake, sent


@given(st.lists(st.integers(0, 70), max_size=6))
def test_a_handshake_is_the_same_however_it_is_cut(cuts: list[int]) -> None:
    said = b'INFO {"server_id":"X"}\r\nPING\r\nPONG\r\nINFO {"ldm":true}\r\nPING\r\n'
    whole, sent = _of_a_server(said)
    places = [0, *sorted(cut % len(said) for cut in cuts), len(said)]
    end = said.index(b"PONG\r\n") + 6
    chunks = [said[a:b] for a, b in pairwise(places) if a < end]
    cut, sent_then = _of_a_server(*chunks)
    assert cut.is_accepted
    assert whole.is_accepted
    assert cut.info == whole.info
    assert sent.replace(b"PONG\r\n", b"", 1) == sent_then.replace(b"PONG\r\n", b"", 1)
    assert len(whole.early) == 2
    assert cut.early == whole.early[: len(cut.early)]


def test_a_handshake_begins_tls_where_either_side_asks_for_it() -> None:
    for words, wants, needs in (
        (b"INFO {}\r\n", False, False),
        (b'INFO {"tls_available":true}\r\n', False, False),
        (b'INFO {"tls_available":true}\r\n', True, True),
        (b'INFO {"tls_required":true}\r\n', False, True),
        (b'INFO {"tls_required":true}\r\n', None, False),
    ):
        handshake, sent = _of_a_server(words, wants_tls=wants)
        assert handshake.needs_tls is needs
        assert (b'"tls_required":true' in sent) is needs
    with pytest.raises(ConnectFailedError, match="does not offer it"):
        _of_a_server(b"INFO {}\r\n", wants_tls=True)


@pytest.mark.parametrize("behind", [b"PING\r\n", b"PI", b"MSG a 1 0\r\n\r\n"])
def test_nothing_that_comes_before_tls_is_taken_for_the_servers(behind: bytes) -> None:
    with pytest.raises(ProtocolError, match="between INFO and the TLS handshake"):
        _of_a_server(b'INFO {"tls_required":true}\r\n' + behind)


def test_credentials_of_a_url_come_before_ours() -> None:
    _, sent = _of_a_server(b"INFO {}\r\n", address=parse_server("nats://theirs:word@h"))
    assert b'"user":"theirs"' in sent
    _, sent = _of_a_server(b"INFO {}\r\n")
    assert b'"user":"us"' in sent


def test_a_server_that_refuses_us_is_told_from_one_that_is_too_busy() -> None:
    with pytest.raises(AuthorizationError, match="Authorization Violation"):
        _of_a_server(b"INFO {}\r\n", b"-ERR 'Authorization Violation'\r\n")
    with pytest.raises(ServerError, match="Authentication Timeout"):
        _of_a_server(b"INFO {}\r\n", b"-ERR 'Authentication Timeout'\r\n")
