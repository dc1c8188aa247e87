from __future__ import annotations

import logging
import re
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import peers
from headrace.broker.core.peer import UNSAID, ConnectOptions, Peer
from headrace.broker.server.connections.tracing import (
    PAYLOAD_BYTES_SHOWN,
    TRACE,
    Trace,
    quoted,
    trace_of,
    who,
)
from waiting import until_here

SAID = (
    b'CONNECT {"verbose":false,"pedantic":false,"name":"my \\u001b[2J app","lang":"x","version":"1.2",'
    b'"headers":true,"no_responders":true}\r\n'
    b"PING\r\nSUB a.* 1\r\nSUB q group 2\r\nPUB a.b 5\r\nhe\"lo\r\nHPUB a.c answers 12 17\r\n"
    b"NATS/1.0\r\n\r\nx\r\n\xffz\r\nUNSUB 2\r\nUNSUB 1 5\r\nPUB a.d 0\r\n\r\nSUB gone 3\r\nUNSUB 3 1\r\n"
    b"PUB gone 12\r\nnine \"quoted\r\nUNSUB 9\r\nPING\r\n"
)  # fmt: skip
LINE = re.compile(r"\[TRC\] \S+ - cid:\d+ - (?:(\".*\") - )?(<<-|->>|<->) (.*)$")


def conversation(server: peers.ServerProcess) -> tuple[list[str], list[str], list[str]]:
    """What the server traced: heard, said, and which subscriptions ended."""
    with socket.create_connection((server.host, server.port), timeout=5) as client:
        client.sendall(SAID)
        heard = b""
        while heard.count(b"PONG") < 2:
            heard += client.recv(4096)
    until_here(lambda: "Client connection closed" in server.log_text())
    until_here(lambda: "[DELSUB 1]" in server.log_text())
    lines = [found for line in server.log_text().splitlines() if (found := LINE.search(line))]
    names = {found[1] for found in lines if found[1]}
    assert names == {'"v1.2:x:my \\x1b[2J app"'}
    heard_lines, said, ended = (
        [found[3] for found in lines if found[2] == arrow] for arrow in ("<<-", "->>", "<->")
    )
    return heard_lines, said, ended


@pytest.mark.peer
def test_the_protocol_is_traced_as_nats_server_does(
    nats_server: Callable[..., peers.ServerProcess],
    headrace_server: Callable[..., peers.ServerProcess],
) -> None:
    theirs = conversation(nats_server(flags=["-DV"], jetstream=False))
    ours = conversation(headrace_server(flags=["-DV"], jetstream=False))
    assert len(theirs[0]) == 17
    assert [re.sub(r"\[CONNECT .*", "", line) for line in ours[0]] == [
        re.sub(r"\[CONNECT .*", "", line) for line in theirs[0]
    ]
    assert ours[1] == theirs[1]
    assert ours[2] == theirs[2] == ["[DELSUB 2]", "[DELSUB 3]", "[DELSUB 1]"]


@pytest.mark.peer
def test_payloads_are_cut_where_nats_server_cuts_them(
    nats_server: Callable[..., peers.ServerProcess],
    headrace_server: Callable[..., peers.ServerProcess],
) -> None:
    config = {nats_server: "max_traced_msg_len: 6", headrace_server: "max_traced_msg_len = 6"}
    payloads = []
    for start in (nats_server, headrace_server):
        heard, said, _ = conversation(start(flags=["-DV"], jetstream=False, config=config[start]))
        payloads.append([line for line in (*heard, *said) if "PAYLOAD" in line])
    assert payloads[0] == payloads[1]
    assert r'MSG_PAYLOAD: ["nine \"..."]' in payloads[0]
    server = headrace_server(flags=["-V", "--max_traced_msg_len", "0"], jetstream=False)
    with socket.create_connection((server.host, server.port), timeout=5) as client:
        client.sendall(SAID[: SAID.index(b"PING")] + b"PUB a 5000\r\n" + b"x" * 5000 + b"\r\n")
        until_here(lambda: f'["{"x" * 5000}"]' in server.log_text())


def test_secrets_are_not_traced(headrace_server: Callable[..., peers.ServerProcess]) -> None:
    server = headrace_server(flags=["-V"], jetstream=False)
    with socket.create_connection((server.host, server.port), timeout=5) as client:
        secrets = b'"pass":"s3cr\\"et","auth_token":"t0ken"}'
        client.sendall(SAID.replace(b"true}", b"true," + secrets, 1))
        until_here(lambda: "[HMSG a.c 1 answers 12 17]" in server.log_text())
    text = server.log_text()
    assert '"pass":"[REDACTED]"' in text
    assert 'et"' not in text
    assert "s3cr" not in text
    assert "t0ken" not in text
    assert "[DBG]" not in text


def test_nothing_is_traced_unless_it_is_wanted(tmp_path: Path) -> None:
    session = SimpleNamespace(peer=Peer("::1", 5), options=UNSAID, client_id=3, tell_ended=print)
    logger = logging.getLogger("headrace.broker.trace")
    assert trace_of(session) is None  # type: ignore[arg-type]
    before = logger.level
    logger.setLevel(TRACE)
    try:
        assert trace_of(session) is not None  # type: ignore[arg-type]
    finally:
        logger.setLevel(before)


def test_a_long_payload_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    session = SimpleNamespace(peer=Peer("::1", 5), options=UNSAID, client_id=3, tell_ended=print)
    with caplog.at_level(TRACE, logger="headrace.broker.trace"):
        trace = Trace(session)  # type: ignore[arg-type]
        trace.heard(b"PUB a 5000\r\n" + b"x" * 2500)
        assert caplog.messages == []  # it is not whole yet
        trace.heard(b"x" * 2500 + b"\r\n")
    assert caplog.messages == [
        "::1:5 - cid:3 - <<- [PUB a 5000]",
        f'::1:5 - cid:3 - <<- MSG_PAYLOAD: ["{"x" * PAYLOAD_BYTES_SHOWN}..."]',
    ]


def test_thousands_of_subscriptions_that_end_at_once_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = SimpleNamespace(peer=Peer("::1", 5), options=UNSAID, client_id=3, tell_ended=print)
    with caplog.at_level(TRACE, logger="headrace.broker.trace"):
        Trace(session).ended([b"%d" % n for n in range(1500)])  # type: ignore[arg-type]
    assert len(caplog.messages) == 1001
    assert caplog.messages[0] == "::1:5 - cid:3 - <-> [DELSUB 0]"
    assert caplog.messages[-1] == "::1:5 - cid:3 - <-> [DELSUB of 500 more]"


def test_a_client_is_named_as_far_as_it_is_known() -> None:
    session = SimpleNamespace(peer=Peer("::1", 5), options=UNSAID, client_id=3, tell_ended=print)
    assert who(session) == "::1:5 - cid:3"  # type: ignore[arg-type]
    session.options = ConnectOptions(name='a"\nb', lang="py")
    assert who(session) == '::1:5 - cid:3 - "py:a\\"\\nb"'  # type: ignore[arg-type]
    assert quoted("\udcff\x00ä\u2028") == '"\\xff\\x00ä\\u2028"'
