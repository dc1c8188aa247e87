"""The verbs scenarios are written in. Each returns a step: a function of the session."""

from __future__ import annotations

import json
import time
from typing import Any

from conformance.driver import QUIET_SECONDS, REPLY_SECONDS, Closed, Session, Step

SILENCE_SECONDS = 0.25


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def _body(body: object) -> bytes:
    if body is None:
        return b""
    if isinstance(body, str | bytes):
        return _bytes(body)
    return json.dumps(body).encode()


def _headers(headers: dict[str, str] | None) -> bytes:
    if headers is None:
        return b""
    return (
        b"NATS/1.0\r\n"
        + b"".join(f"{key}: {value}\r\n".encode() for key, value in headers.items())
        + b"\r\n"
    )


# Connections and raw protocol


def greet(on: str = "a", *, record: bool = False) -> Step:
    """Open a connection, read (and record) INFO, send nothing."""
    return lambda session: session.greet(on, record=record)


def connect(on: str = "a", **options: Any) -> Step:
    """Open a connection with these CONNECT options over the usual ones."""
    return lambda session: session.connect(on, {**Session.DEFAULT_CONNECT, **options})


def raw(text: str | bytes, on: str = "a") -> Step:
    """Send lines as they are; ``\\n`` in a str becomes CR LF, bytes go untouched."""
    data = text.replace("\n", "\r\n").encode() if isinstance(text, str) else text
    return lambda session: session.send(on, data)


def drain(on: str = "a") -> Step:
    """PING, and record everything up to PONG."""
    return lambda session: session.drain(on)


def read(frames: int = 1, on: str = "a", timeout: float = REPLY_SECONDS) -> Step:
    return lambda session: session.read(on, frames, timeout)


def quiet(seconds: float = QUIET_SECONDS, on: str = "a") -> Step:
    """Record whatever comes until it is quiet for so long."""
    return lambda session: session.read_until_quiet(on, seconds)


def closed(on: str = "a", timeout: float = REPLY_SECONDS) -> Step:
    """Record everything until the server closes the connection."""
    return lambda session: session.read_until_closed(on, timeout)


def count_messages(on: tuple[str, ...], expected: int) -> Step:
    """Record how many messages arrived in sum, for queue groups, where who gets which is free."""

    def step(session: Session) -> None:
        total = 0
        for name in on:
            wire = session.wire(name)
            wire.send(b"PING\r\n")
            while (frame := wire.frame()) is not None and frame[0] != b"PONG":
                total += frame[0] == b"MSG"
        session.note(f"{total} messages (expected {expected})")

    return step


# Requests


def request(
    subject: str,
    body: object = None,
    *,
    headers: dict[str, str] | None = None,
    replies: int = 1,
    timeout: float = REPLY_SECONDS,
    learn: str = "",
    on: str = "a",
) -> Step:
    """Publish with a fresh inbox, record the replies. ``learn`` masks the reply's ``name``."""

    def step(session: Session) -> None:
        inbox = session.inbox(on)
        target = _fill(subject, session)
        session.publish(on, target, inbox, _headers(headers), _body(body))
        if learn:
            _learn(session, on, learn)
        else:
            session.read(on, replies, timeout)

    return step


def _learn(session: Session, on: str, mask: str) -> None:
    frame = session.wire(on).frame()
    if frame is None or frame[0] != b"MSG":
        session.note(f"{on}: no reply to learn from")
        raise Closed
    document = json.loads(frame[5])
    session.names[mask] = str(document.get("name", "(no name)"))
    session.note(f"{on}: learned {mask}: {len(session.names[mask])} characters")


def _fill(subject: str, session: Session) -> bytes:
    for mask, name in session.names.items():
        subject = subject.replace(mask, name)
    return subject.encode()


def api(call: str, body: object = None, **options: Any) -> Step:
    """A JetStream API request: ``api("STREAM.INFO.S")``."""
    return request(f"$JS.API.{call}", body, **options)


def unanswered(subject: str, body: object = None, on: str = "a") -> Step:
    """A request that must stay without any reply."""
    return request(subject, body, timeout=SILENCE_SECONDS, on=on)


def publish(
    subject: str, payload: str | bytes = b"", headers: dict[str, str] | None = None
) -> Step:
    """Publish to a stream and record its acknowledgement."""
    return request(subject, payload, headers=headers)


def publish_all(*subjects: str, payload: str = "x") -> Step:
    """Publish to each subject and wait for the acknowledgements without recording them."""

    def step(session: Session) -> None:
        inbox = session.inbox("publisher")
        for subject in subjects:
            session.publish("publisher", subject.encode(), inbox, b"", payload.encode())
            session.wire("publisher").frame()

    return step


def stream(name: str = "S", **config: Any) -> Step:
    """Create a stream without recording the reply."""
    return unrecorded(f"STREAM.CREATE.{name}", {"name": name, **config})


def update_stream(name: str = "S", **config: Any) -> Step:
    """Change a stream without recording the reply."""
    return unrecorded(f"STREAM.UPDATE.{name}", {"name": name, **config})


def consumer(name: str = "C", stream: str = "S", **config: Any) -> Step:
    """Create a durable pull consumer with explicit acks, without recording the reply."""
    settings = {"durable_name": name, "ack_policy": "explicit", **config}
    body = {"stream_name": stream, "config": settings}
    return unrecorded(f"CONSUMER.CREATE.{stream}.{name}", body)


def unrecorded(call: str, body: object) -> Step:
    """A JetStream API request whose answer is waited for, but not recorded."""

    def step(session: Session) -> None:
        inbox = session.inbox("set-up")
        session.publish("set-up", f"$JS.API.{call}".encode(), inbox, b"", _body(body))
        frame = session.wire("set-up").frame()
        if frame is None or b'"error"' in frame[-1]:
            session.note(f"set-up failed: {call}: {frame!r}")

    return step


def counted(pending: int, consumer: str = "C", stream: str = "S") -> Step:
    """Wait until a consumer has so many messages before it: nats-server tells it after the ack."""

    def step(session: Session) -> None:
        deadline = time.monotonic() + REPLY_SECONDS
        inbox = session.inbox("set-up")
        while True:
            subject = f"$JS.API.CONSUMER.INFO.{stream}.{consumer}".encode()
            session.publish("set-up", subject, inbox, b"", b"")
            frame = session.wire("set-up").frame()
            if frame is None or time.monotonic() > deadline:
                session.note(f"{consumer} never had {pending} messages before it: {frame!r}")
                return
            if json.loads(frame[-1]).get("num_pending") == pending:
                return

    return step


# Pulls and acks


def pull(
    body: object,
    frames: int,
    *,
    consumer: str = "C",
    stream: str = "S",
    timeout: float = REPLY_SECONDS,
    after: float = QUIET_SECONDS,
    on: str = "a",
) -> Step:
    """Ask for messages; record ``frames`` replies, and whatever else comes within ``after``."""

    def step(session: Session) -> None:
        inbox = session.inbox(on)
        target = _fill(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", session)
        session.publish(on, target, inbox, b"", _body(body))
        if frames:
            session.read(on, frames, timeout)
        session.read_until_quiet(on, after)

    return step


def pull_pinned(body: dict[str, Any], frames: int = 1, *, on: str = "a") -> Step:
    """Ask for messages with the id of the last pin that was seen."""
    return lambda session: pull({**body, "id": session.pin}, frames, on=on)(session)


def ask(body: object, *, consumer: str = "C", stream: str = "S", on: str = "a") -> Step:
    """Ask for messages and go on at once; replies are recorded by a later ``read``."""

    def step(session: Session) -> None:
        inbox = session.inbox(on)
        target = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}".encode()
        session.publish(on, target, inbox, b"", _body(body))
        # The server has seen the request when it answers the PING behind it.
        session.wire(on).send(b"PING\r\n")
        session.read(on, 1)

    return step


def ack(index: int, body: str = "+ACK", *, sync: bool = True, on: str = "a") -> Step:
    """Acknowledge the ``index``-th delivered message; ``sync`` waits for and records the answer."""

    def step(session: Session) -> None:
        target = session.ack_replies[index]
        inbox = session.inbox(on) if sync else b""
        session.publish(on, target, inbox, b"", body.encode())
        if sync:
            session.read(on, 1)
        else:
            session.drain(on)

    return step


def answer_flow_control(on: str = "a", headers: dict[str, str] | None = None) -> Step:
    """Answer the last request for flow control that was recorded."""

    def step(session: Session) -> None:
        session.note("answered" if session.flow_reply else "no request for flow control")
        if session.flow_reply:
            session.publish(on, session.flow_reply, b"", _headers(headers), b"")

    return step
