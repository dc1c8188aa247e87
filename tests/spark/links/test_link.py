"""A connection for processes without a loop: which server it finds, and what the server says on it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any, Self

import pytest

from headrace.errors import (
    AuthorizationError,
    ConnectFailedError,
    ConnectionClosedError,
    NoRespondersError,
    ProtocolError,
)
from headrace.spark.links.control import Control
from headrace.spark.links.link import Link
from headrace.spark.links.outages import may_pass
from headrace.spark.options import Connection

REFUSAL = b"-ERR 'Authorization Violation'\r\n"


class Server:
    """Accepts connections, and on each says its INFO, ``answer`` to a PING, ``words`` to a SUB.

    Attributes:
        accepted: how many connections there were.
        answers: what a request is answered with: header block and payload.
    """

    def __init__(self, answer: bytes = b"PONG\r\n", words: bytes = b"", **info: Any) -> None:
        self.accepted = 0
        self.answers: tuple[bytes, bytes] = (b"", b"")
        self._said = b"INFO %b\r\n" % json.dumps({"headers": True, **info}).encode(), answer, words
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    @property
    def address(self) -> str:
        host, port = self._listening.getsockname()
        return f"{host}:{port}"

    def __enter__(self) -> Self:
        self._begin(self._accept)
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Close everything; a connection is refused from now on."""
        if self._listening.fileno() < 0:
            return
        self._listening.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listening.close()
        for each in self._sockets:
            with suppress(OSError):  # the other side may have gone
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in self._sockets:
            each.close()

    def _begin(self, work: Any, *args: Any) -> None:
        self._threads.append(threading.Thread(target=work, args=args))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listening.accept()
            except OSError:
                return  # it was stopped
            self.accepted += 1
            self._sockets.append(accepted)
            self._begin(self._serve, accepted)

    def _serve(self, accepted: socket.socket) -> None:
        accepted.sendall(self._said[0])
        with accepted.makefile("rb") as lines:
            try:
                for line in lines:
                    if line.startswith(b"PING"):
                        accepted.sendall(self._said[1])
                    elif line.startswith(b"SUB"):
                        accepted.sendall(self._said[2])
                    elif line.startswith(b"PUB"):
                        reply = line.split()[2]
                        block, payload = self.answers
                        accepted.sendall(
                            b"HMSG %b 1 %d %d\r\n%b%b\r\n"
                            % (reply, len(block), len(block) + len(payload), block, payload)
                        )
            except OSError:
                return  # the other side has gone


@pytest.fixture
def servers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def connection(*servers: Server) -> Connection:
    return Connection(servers=tuple(f"nats://{each.address}" for each in servers))


def test_another_server_of_a_cluster_takes_over_that_was_not_given(servers: ExitStack) -> None:
    other = servers.enter_context(Server())
    given = servers.enter_context(Server(connect_urls=[other.address]))
    to = connection(given)
    Link.open(to).close()
    given.stop()
    Link.open(to).close()
    assert other.accepted == 1


def test_a_server_that_is_told_of_later_takes_over_too(servers: ExitStack) -> None:
    other = servers.enter_context(Server())
    told = b'INFO {"headers":true,"connect_urls":["%b"]}\r\n' % other.address.encode()
    given = servers.enter_context(Server(words=told))
    to = connection(given)
    with closing(Link.open(to)) as link:
        link.request("a")
    given.stop()
    Link.open(to).close()
    assert other.accepted == 1


def test_what_an_older_connection_is_told_the_next_one_knows(servers: ExitStack) -> None:
    other = servers.enter_context(Server())
    told = b'INFO {"headers":true,"connect_urls":["%b"]}\r\n' % other.address.encode()
    given = servers.enter_context(Server(words=told))
    to = connection(given)
    with closing(Link.open(to)) as link:
        Link.open(to).close()  # it was told of nobody
        link.request("a")
    given.stop()
    Link.open(to).close()
    assert other.accepted == 1


def test_a_host_that_cannot_be_one_is_passed_over_and_said(servers: ExitStack) -> None:
    good = servers.enter_context(Server())
    Link.open(Connection(servers=("nats://a..b", f"nats://{good.address}"))).close()
    assert good.accepted == 1
    with pytest.raises(ConnectFailedError, match=r"nats://a\.\.b:4222: this cannot be a host name"):
        Link.open(Connection(servers=("nats://a..b",)))


def test_the_server_that_answered_last_is_the_first_to_be_tried(servers: ExitStack) -> None:
    bad = servers.enter_context(Server(answer=b"-ERR 'maximum connections exceeded'\r\n"))
    good = servers.enter_context(Server())
    to = connection(bad, good)
    for _ in range(3):
        Link.open(to).close()
    assert (bad.accepted, good.accepted) == (1, 3)


def test_one_server_that_refuses_the_credentials_is_passed_over(servers: ExitStack) -> None:
    refusing = servers.enter_context(Server(answer=REFUSAL))
    good = servers.enter_context(Server())
    Link.open(connection(refusing, good)).close()
    assert good.accepted == 1


def test_where_all_fail_a_refusal_is_what_is_said(servers: ExitStack) -> None:
    refusing = servers.enter_context(Server(answer=REFUSAL))
    gone = servers.enter_context(Server())
    to = connection(gone, refusing)
    gone.stop()
    with pytest.raises(AuthorizationError, match="refused us"):
        Link.open(to)
    refusing.stop()
    with pytest.raises(ConnectFailedError, match="cannot reach a NATS server; nats://"):
        Link.open(to)


def test_credentials_that_expire_end_the_connection_and_not_the_query(servers: ExitStack) -> None:
    """Those of the next connection may be other ones: the file is read again."""
    server = servers.enter_context(Server(words=b"-ERR 'User Authentication Expired'\r\n"))
    link = Link.open(connection(server))
    with pytest.raises(ConnectionClosedError, match="User Authentication Expired") as raised:
        link.request("a")
    assert may_pass(raised.value)


def test_a_missing_permission_is_not_waited_for(servers: ExitStack) -> None:
    said = b"-ERR 'Permissions Violation for Publish to \"a\"'\r\n"
    link = Link.open(connection(servers.enter_context(Server(words=said))))
    with pytest.raises(AuthorizationError, match="Permissions Violation"):
        link.request("a")


def test_an_info_that_is_not_understood_is_said_and_the_one_before_holds(
    servers: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    server = servers.enter_context(
        Server(words=b'INFO {"max_payload":"much"}\r\n', server_name="one")
    )
    with closing(Link.open(connection(server))) as link:
        assert link.request("a").payload == b""
        assert link.info.server_name == "one"
    assert "INFO is not understood" in caplog.text


def test_an_answer_with_a_payload_is_one_whatever_its_status(servers: ExitStack) -> None:
    server = servers.enter_context(Server())
    with closing(Link.open(connection(server))) as link:
        server.answers = b"NATS/1.0 503 Busy\r\n\r\n", b"later"
        assert link.request("a").payload == b"later"
        server.answers = b"NATS/1.0 503\r\n\r\n", b""
        with pytest.raises(NoRespondersError, match="nobody answers on a"):
            link.request("a")


def test_what_jetstream_has_not_said_is_named(servers: ExitStack) -> None:
    server = servers.enter_context(Server())
    server.answers = b"NATS/1.0\r\n\r\n", b"hello"
    with (
        closing(Link.open(connection(server))) as link,
        pytest.raises(ProtocolError, match=r"answer on '\$JS\.API\.STREAM\.INFO\.S'"),
    ):
        Control(link, "S").stream_info()
