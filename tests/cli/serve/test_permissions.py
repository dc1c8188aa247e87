"""One file, two servers: what users may do is decided and told alike."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

import peers

CONFIG = """
authorization {
  timeout: 5
  default_permissions { publish: "d.*", subscribe: "d.>" }
  users: [
    { user: admin, password: a, permissions { publish: ">", subscribe: ">" } }
    { user: ann, password: a, permissions {
        publish { allow: ["a.>", "$JS.API.INFO"], deny: "a.secret" }
        subscribe { allow: ["a.>", "_INBOX.>"], deny: ["a.secret", "a.deep.>"] } } }
    { user: svc, password: a, permissions { subscribe: "svc.*", allow_responses: { max: 2 } } }
    { user: eve, password: a }
  ]
}
"""


class Client:
    """A bare connection of one user."""

    def __init__(self, port: int, user: str, password: str = "a") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        self.lines = self.socket.makefile("rb")
        assert self.lines.readline().startswith(b"INFO ")
        self.say(
            'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,'
            f'"user":"{user}","pass":"{password}"}}'
        )

    def say(self, *lines: str) -> None:
        self.socket.sendall("".join(f"{line}\r\n" for line in lines).encode())

    def hear(self) -> list[str]:
        """What is said until the answer to a PING, or until the server hangs up."""
        self.say("PING")
        heard: list[str] = []
        for line in self.lines:
            text = line.decode().rstrip("\r\n")
            if text == "PONG":
                return heard
            if text != "PING":
                heard.append(text)
        return [*heard, "<closed>"]

    def close(self) -> None:
        self.lines.close()
        self.socket.close()


def transcript(port: int, steps: list[tuple[str, str]]) -> list[str]:
    """Each step is a user and what it says; answers are in the order of the steps."""
    clients: dict[str, Client] = {}
    heard: list[str] = []
    try:
        for user, line in steps:
            if user not in clients:
                clients[user] = Client(port, user)
            if line:
                clients[user].say(*line.split("\n"))
            heard += [f"{user}: {answer}" for answer in clients[user].hear()]
    finally:
        for client in clients.values():
            client.close()
    return heard


STEPS = {
    "publishing": [
        ("admin", "SUB > 1"),
        ("ann", "PUB a.b 1\nx"),
        ("ann", "PUB a.secret 1\nx"),
        ("ann", "PUB b 1\nx"),
        ("ann", "HPUB b 12 13\nNATS/1.0\n\nx"),
        ("eve", "PUB d.x 1\nx"),
        ("eve", "PUB d.x.y 1\nx"),
        ("admin", ""),
    ],
    "subscribing": [
        ("ann", "SUB a.b 1"),
        ("ann", "SUB a.secret 2"),
        ("ann", "SUB b 3"),
        ("ann", "SUB > 4"),
        ("ann", "SUB b workers 5"),
        ("ann", "SUB a.* 6"),
        ("ann", "SUB a.deep.* 7"),
        ("eve", "SUB d.> 1"),
        ("eve", "SUB e 2"),
    ],
    "a denied subject is kept out of a wildcard": [
        ("ann", "SUB a.> 1"),
        ("admin", "PUB a.b 1\nx\nPUB a.secret 1\ny\nPUB a.deep.er 1\nz\nHPUB a.secret 12 13\nNATS/1.0\n\nx"),
        ("admin", "PUB a.c back 1\nx\nPUB a.secret back 1\ny"),
        ("ann", ""),
    ],
    "a queue group does not show what is denied": [
        ("ann", "SUB a.> workers 1"),
        ("admin", "PUB a.b 1\nx\nPUB a.secret 1\ny"),
        ("ann", ""),
    ],
    "answering": [
        ("svc", "SUB svc.* 1"),
        ("admin", "SUB answers.* 1"),
        ("svc", "PUB answers.1 1\na"),
        ("admin", "PUB svc.x answers.1 1\nq"),
        ("svc", "PUB answers.1 1\na"),
        ("svc", "PUB answers.2 1\nb"),
        ("svc", "PUB answers.1 1\nc"),
        ("svc", "PUB answers.1 1\nd"),
        ("admin", ""),
    ],
}  # fmt: skip


@pytest.fixture
def both(
    nats_server: Callable[..., peers.ServerProcess], tmp_path: Path
) -> Callable[[list[tuple[str, str]]], tuple[list[str], list[str]]]:
    def play(steps: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
        theirs = nats_server(config=CONFIG)
        file = tmp_path / "same.conf"
        file.write_text(CONFIG)
        ours = peers.start_headrace(tmp_path / "ours", flags=["-c", str(file)])
        try:
            return transcript(ours.port, steps), transcript(theirs.port, steps)
        finally:
            ours.stop()

    return play


@pytest.mark.peer
@pytest.mark.parametrize("name", STEPS)
def test_permissions_of_the_same_file_are_those_of_nats_server(
    both: Callable[[list[tuple[str, str]]], tuple[list[str], list[str]]], name: str
) -> None:
    ours, theirs = both(STEPS[name])
    assert ours == theirs
