"""A reload that lowers what an account may have acts on who is connected, on both servers alike."""

from __future__ import annotations

import select
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import peers
from waiting import until_here

pytestmark = pytest.mark.peer

WITHIN_S = 30.0


def settings(
    *, connections: int = 10, subscriptions: int = 10, payload: int = 1000, may: str = "allow"
) -> str:
    return f"""
accounts {{
  A {{ users: [ {{user: ann, password: p}} ]
       limits {{ max_conn: {connections}, max_subs: {subscriptions}, max_payload: {payload} }} }}
  B {{ users: [ {{user: bob, password: p, permissions: {{
       publish: {{ {may}: ["x.>"] }}, subscribe: {{ {may}: ["s.>"] }} }} }} ] }}
}}
"""


class Reloading:
    """A server, and the file it was started with."""

    def __init__(self, kind: str, directory: Path) -> None:
        if kind == "headrace":
            self.file = directory / "same.conf"
            self.file.write_text(settings())
            flags = ["-c", str(self.file)]
            self.server = peers.start_headrace(directory / "ours", flags=flags, jetstream=False)
        else:
            self.server = peers.start_nats_server(
                directory / "theirs", config=settings(), jetstream=False
            )
            self.file = directory / "theirs" / "nats.conf"
        self._head = self.file.read_text().partition(settings())[0]
        self._reloads = 0

    def reload(self, text: str) -> None:
        self.file.write_text(self._head + text)
        self._reloads += 1
        self.server.process.send_signal(signal.SIGHUP)
        until_here(
            lambda: self.server.log_text().count("Reloaded server configuration") == self._reloads,
            "the reload is over",
            within=WITHIN_S,
        )

    def log_in(self, user: str, *lines: str) -> Client:
        client = Client(self.server.host, self.server.port)
        login = f'CONNECT {{"user":"{user}","pass":"p","verbose":false}}'
        assert client.ask(login, *lines) == []
        return client


class Client:
    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=WITHIN_S)
        self._file = self._socket.makefile("rb")
        self.said = b""  # what ``has_ended`` has heard

    def ask(self, *lines: str) -> list[str]:
        """What is heard until the answer to a PING, or the end."""
        self._socket.sendall("".join(f"{line}\r\n" for line in (*lines, "PING")).encode())
        return self.hear("PONG")

    def hear(self, last: str = "") -> list[str]:
        """What is heard up to this line, which is left out; without one, until the end."""
        heard: list[str] = []
        for raw in self._file:
            line = raw.decode().rstrip()
            if last and line == last:
                break
            if not line.startswith("INFO") and line != "PING":
                heard.append(line)
        return heard

    def has_ended(self) -> bool:
        """Whether the server has hung up. Nothing is sent: what it said before would be lost to an RST."""
        while select.select([self._socket], [], [], 0)[0]:
            piece = self._socket.recv(4096)
            if not piece:
                return True
            self.said += piece
        return False

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@pytest.fixture(params=["headrace", "nats-server"])
def reloading(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reloading]:
    made = Reloading(request.param, tmp_path)
    yield made
    made.server.stop()


def test_who_has_more_subscriptions_than_may_be_is_told_and_closed(reloading: Reloading) -> None:
    many = reloading.log_in("ann", *(f"SUB s{number} {number}" for number in range(5)))
    few = reloading.log_in("ann", "SUB s 1")
    reloading.reload(settings(subscriptions=2))
    assert many.hear() == ["-ERR 'maximum subscriptions exceeded'"]
    assert few.ask("SUB t 2", "SUB u 3") == ["-ERR 'maximum subscriptions exceeded'"]
    for client in (many, few):
        client.close()


def test_a_smaller_payload_holds_for_who_is_connected(reloading: Reloading) -> None:
    ann = reloading.log_in("ann", "PUB t 20", "x" * 20)
    reloading.reload(settings(payload=10))
    assert ann.ask("PUB t 5", "x" * 5) == []
    assert ann.ask("PUB t 20", "x" * 20) == ["-ERR 'Maximum Payload Violation'"]
    ann.close()


def test_as_many_connections_stay_as_may_be_and_the_others_are_told(reloading: Reloading) -> None:
    clients = [reloading.log_in("ann") for _ in range(6)]
    reloading.reload(settings(connections=2))
    told = "-ERR 'maximum account active connections exceeded'"
    until_here(
        lambda: sum(client.has_ended() for client in clients) == 4, "four end", within=WITHIN_S
    )
    ended = [client for client in clients if client.has_ended()]
    assert [told in client.said.decode() for client in ended] == [True] * 4
    assert [client.ask() for client in clients if client not in ended] == [[], []]
    for client in clients:
        client.close()


def test_permissions_taken_away_end_subscriptions_and_refuse_publishes(
    reloading: Reloading,
) -> None:
    bob = reloading.log_in("bob", "SUB s.a 1", "SUB s.b 2", "PUB x.a 1", "x")
    reloading.reload(settings(may="deny"))
    ended = [
        f'-ERR \'Permissions Violation for Subscription to "s.{name}" (sid "{sid}")\''
        for name, sid in (("a", 1), ("b", 2))
    ]
    heard = bob.ask("PUB x.a 1", "x", "SUB s.c 3", "SUB u 4", "PUB s.a 1", "x", "PUB u 1", "y")
    assert sorted(heard[:2]) == ended
    assert heard[2:] == [
        "-ERR 'Permissions Violation for Publish to \"x.a\"'",
        "-ERR 'Permissions Violation for Subscription to \"s.c\"'",
        "MSG u 4 1",
        "y",
    ]
    bob.close()
