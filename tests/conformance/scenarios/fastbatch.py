"""Fast batches: messages published one by one and stored at once, acknowledged many at a time."""

from __future__ import annotations

from typing import Any

from conformance.driver import Session, Step
from conformance.steps import api, consumer, publish, pull, quiet, raw, stream, update_stream
from conformance.table import Scenario, Table

INFO = "STREAM.INFO.S"
START, APPEND, COMMIT, END, PING = range(5)
LISTEN = raw("SUB I.> 1\n")


def part(
    sequence: object,
    op: object = APPEND,
    *,
    subject: str = "a",
    payload: str = "x",
    batch: str = "one",
    flow: object = 10,
    gap: str = "fail",
    replies: int = 0,
    **more: str,
) -> Step:
    """Send a message of a batch, and record so many answers."""
    return reply_is(
        f"I.{batch}.{flow}.{gap}.{sequence}.{op}.$FI",
        subject=subject,
        payload=payload,
        replies=replies,
        **more,
    )


def reply_is(
    reply: str, *, subject: str = "a", payload: str = "x", replies: int = 1, **more: str
) -> Step:
    headers = "".join(f"{key.replace('_', '-')}: {value}\r\n" for key, value in more.items())
    block = f"NATS/1.0\r\n{headers}\r\n".encode() if more else b""

    def step(session: Session) -> None:
        session.publish("a", subject.encode(), reply.encode(), block, payload.encode())
        if replies:
            session.read("a", replies)

    return step


def begin(**more: Any) -> Step:
    return part(1, START, **{"replies": 1, **more})


def begin_many(numbers: range) -> Step:
    """Begin batches by those numbers at once, and wait until each is answered.

    One after the other they would take so long on a busy machine that the first are forgotten as idle.
    """

    def step(session: Session) -> None:
        for number in numbers:
            reply = f"I.b{number}.10.fail.1.{START}.$FI".encode()
            session.publish("a", b"a", reply, b"", b"x")
        for number in numbers:
            session.read_for("a", f"I.b{number}.".encode(), record=False)

    return step


def alone(step: Step, batch: str) -> Step:
    """A step that expects no answer, and then that of ``batch`` alone, past those of others."""

    def both(session: Session) -> None:
        step(session)
        session.read_for("a", f"I.{batch}.".encode())

    return both


def batches(**config: Any) -> list[Step]:
    return [stream(**{"subjects": ["a", "b.*"], "allow_batched": True, **config}), LISTEN]


TABLE: Table = [
    Scenario(
        "fast: stored one by one, acknowledged at the end",
        [
            *batches(),
            begin(),
            part(2, subject="b.x"),
            part(3, COMMIT, replies=1),
            api(INFO),
            consumer(ack_policy="none"),
            pull("3", 3),
        ],
    ),
    Scenario(
        "fast: ended without a message, and of one message",
        [
            *batches(),
            begin(),
            part(2),
            part(3, END, replies=1),
            part(1, COMMIT, replies=1),
            begin(batch="two"),
            part(2, END, batch="two", replies=1),
            part(2, END, batch="two", replies=1),
            quiet(),
            api(INFO),
        ],
    ),
    Scenario(
        "fast: acknowledged as often as asked for",
        [
            *batches(),
            begin(flow=2),
            part(2, flow=2, replies=1),
            part(3, flow=2),
            part(4, flow=2, replies=1),
            part(5, flow=2),
            part(6, COMMIT, flow=2, replies=1),
            quiet(),
        ],
    ),
    Scenario(
        "fast: how often may be asked for",
        [
            *batches(),
            begin(flow="1", replies=2),
            part(2, END, replies=1),
            *[
                step
                for flow in ("0", "-1", "x", "499", "500", "501", "70000")
                for step in (begin(flow=flow), part(2, END, replies=1))
            ],
        ],
    ),
    Scenario(
        "fast: two publishers share",
        [
            *batches(),
            begin(flow=4),
            begin(batch="two", flow=4, replies=2),
            part(2, batch="two", flow=4),
            part(3, batch="two", flow=4, replies=1),
            part(4, batch="two", flow=4),
            *[part(number, batch="two", flow=4) for number in range(5, 7)],
            part(2),
            part(3),
            part(4, replies=1),
            part(5, COMMIT, replies=1),
            part(7, END, batch="two", flow=4, replies=1),
        ],
    ),
    Scenario(
        "fast: what is wrong with a reply subject",
        [
            *batches(),
            reply_is("I.one.10.fail.1.5.$FI"),
            reply_is("I.one.10.fail.1.x.$FI"),
            reply_is("I.one.10.fail.1.-1.$FI"),
            reply_is("I.one.10.fail.0.0.$FI"),
            reply_is("I.one.10.fail.2.0.$FI"),
            reply_is("I.one.10.fail.1.1.$FI"),
            reply_is("I.one.10.fail.1.3.$FI"),
            reply_is("I.one.10.fail.x.1.$FI"),
            reply_is("I.one.10.fail.-2.1.$FI"),
            reply_is("I.one.10.maybe.1.0.$FI"),
            reply_is("I.one.10.FAIL.1.0.$FI"),
            reply_is("I.10.fail.1.0.$FI"),
            reply_is("I.fail.1.0.$FI"),
            reply_is("I.1.0.$FI"),
            reply_is("I.0.$FI"),
            reply_is("I.$FI"),
            reply_is("I.x$FI"),
            reply_is(f"I.{'i' * 65}.10.fail.1.0.$FI"),
            reply_is(f"I.{'i' * 64}.10.fail.1.2.$FI"),
            reply_is("I.one.10.fail.18446744073709551615.1.$FI"),
            reply_is("I.one.10.fail.18446744073709551614.1.$FI"),
            api(INFO),
        ],
    ),
    Scenario(
        "fast: a batch nobody began",
        [
            *batches(),
            part(2, replies=1),
            part(2, COMMIT, replies=1),
            part(2, END, replies=1),
            part(2, PING, replies=1),
            part(1, PING, replies=2),
            api(INFO),
        ],
    ),
    Scenario(
        "fast: on a stream that takes none",
        [
            *batches(allow_batched=False),
            begin(),
            reply_is("I.one.10.maybe.1.0.$FI"),
            part(1, COMMIT, replies=1, Nats_Msg_Id="x"),
            part(2, PING, replies=1),
            api(INFO),
        ],
    ),
    Scenario(
        "fast: a gap ends it",
        [
            *batches(),
            begin(),
            part(2),
            part(4, replies=2),
            part(5, replies=1),
            part(3, replies=1),
            begin(),
            part(3, COMMIT, replies=2),
            begin(),
            part(3, END, replies=2),
            api(INFO),
        ],
    ),
    Scenario(
        "fast: a gap does not matter",
        [
            *batches(),
            begin(gap="ok", flow=2),
            part(4, gap="ok", flow=2, replies=2),
            part(6, gap="ok", flow=2, replies=2),
            part(9, END, gap="ok", flow=2, replies=2),
            api(INFO),
        ],
    ),
    Scenario(
        "fast: backwards",
        [
            *batches(),
            begin(),
            part(2),
            part(2, replies=2),
            begin(gap="ok"),
            part(2, gap="ok"),
            part(1, START, gap="ok", replies=2),
            part(3, gap="ok", replies=1),
            api(INFO),
        ],
    ),
    Scenario(
        "fast: pings",
        [
            *batches(),
            begin(flow=2),
            part(1, PING, replies=1),
            part(2, replies=1),
            part(2, PING, replies=1),
            part(3),
            part(3, PING, replies=1),
            quiet(),
            part(5, PING, replies=2),
            begin(gap="ok", flow=2),
            quiet(),
            part(3, PING, gap="ok", replies=2),
            part(4, gap="ok", replies=1),
            part(4, PING, gap="ok", replies=1),
            part(5, COMMIT, gap="ok", replies=1),
            api(INFO),
        ],
    ),
    Scenario(
        "fast: what an expectation ends",
        [
            *batches(),
            begin(),
            part(2),
            part(3, replies=2, Nats_Expected_Last_Sequence="7"),
            part(4, replies=1),
            begin(replies=2, Nats_Expected_Last_Sequence="7"),
            part(1, COMMIT, replies=1, Nats_Expected_Last_Sequence="7"),
            begin(),
            part(2, COMMIT, replies=2, Nats_Expected_Last_Subject_Sequence="9"),
            begin(replies=2, Nats_Expected_Last_Sequence="4"),
            part(2, COMMIT, replies=1, Nats_Expected_Last_Msg_Id=""),
            api(INFO),
        ],
    ),
    Scenario(
        "fast: what an expectation does not end",
        [
            *batches(),
            begin(gap="ok", flow=2),
            part(2, gap="ok", replies=1, Nats_Expected_Last_Sequence="7"),
            part(3, gap="ok", replies=1),
            part(4, gap="ok", replies=1, Nats_Expected_Stream="T"),
            part(5, COMMIT, gap="ok", replies=2, Nats_Expected_Last_Sequence="7"),
            begin(gap="ok", replies=2, Nats_Expected_Last_Sequence="7"),
            part(2, END, gap="ok", replies=1),
            part(1, COMMIT, gap="ok", replies=2, Nats_Expected_Last_Sequence="7"),
            quiet(),
            api(INFO),
        ],
    ),
    Scenario(
        "fast: duplicates",
        [
            *batches(),
            publish("a", "x", {"Nats-Msg-Id": "known"}),
            begin(flow=2, Nats_Msg_Id="known"),
            part(2, replies=1, Nats_Msg_Id="new"),
            part(3, Nats_Msg_Id="new"),
            part(4, replies=1, Nats_Msg_Id="known"),
            part(5, COMMIT, replies=1, Nats_Msg_Id="known"),
            part(1, COMMIT, replies=1, Nats_Msg_Id="known"),
            part(1, COMMIT, gap="ok", replies=1, Nats_Msg_Id="known"),
            begin(flow=2, Nats_Msg_Id="other"),
            part(2, END, replies=1),
            quiet(),
            api(INFO),
        ],
    ),
    Scenario(
        "fast: too large a message",
        [
            *batches(max_msg_size=10),
            begin(),
            part(2, payload="x" * 11, replies=1),
            part(3, replies=2),
            begin(payload="x" * 11),
            api(INFO),
        ],
    ),
    Scenario(
        "fast: into a full stream",
        [
            *batches(max_msgs=2, discard="new"),
            begin(),
            part(2),
            part(3, replies=2),
            begin(replies=2),
            begin(gap="ok", replies=2),
            part(2, COMMIT, gap="ok", replies=2),
        ],
    ),
    Scenario(
        "fast: a level nobody has",
        [
            *batches(),
            begin(Nats_Required_Api_Level="1"),
            part(2, replies=1, Nats_Required_Api_Level="99"),
            part(3, replies=1),
            consumer(ack_policy="none"),
            pull("1", 1),
        ],
    ),
    Scenario(
        "fast: into a work queue, transformed, counted as interest wants",
        [
            *batches(retention="interest", subject_transform={"src": "a", "dest": "b.y"}),
            begin(),
            part(2, END, replies=1),
            consumer(ack_policy="explicit"),
            begin(),
            part(2, COMMIT, subject="b.x", replies=1),
            pull("2", 2),
            api(INFO),
        ],
    ),
    Scenario(
        "fast: a batch within a batch",
        [
            *batches(allow_atomic=True),
            begin(),
            part(2, COMMIT, replies=1, Nats_Batch_Id="at", Nats_Batch_Sequence="1"),
            publish("a", "x", {"Nats-Batch-Id": "at", "Nats-Batch-Sequence": "1"}),
            part(1, COMMIT, replies=1, Nats_Incr="+1"),
            api(INFO),
        ],
    ),
    Scenario(
        "fast: without acknowledgements",
        [
            *batches(no_ack=True),
            begin(replies=0, flow=2),
            part(2, replies=1),
            part(3, PING, replies=2),
            begin(replies=0),
            part(2, END, replies=1),
            begin(replies=0),
            part(2, COMMIT),
            quiet(),
            api(INFO),
        ],
    ),
    Scenario(
        "fast: an update ends it",
        [
            *batches(),
            begin(),
            update_stream(subjects=["a", "b.*"], allow_batched=False),
            part(2, replies=1),
            update_stream(subjects=["a", "b.*"], allow_batched=True),
            part(2, replies=1),
            update_stream(subjects=["a", "b.*"], allow_batched=True, sealed=True),
            begin(),
        ],
    ),
    Scenario(
        "fast: one more than a stream takes",
        [
            *batches(),
            begin(batch="b0"),
            begin_many(range(1, 1000)),
            alone(begin(batch="one-more", replies=0), "one-more"),
            alone(part(2, END, batch="b7"), "b7"),
            alone(begin(batch="one-more", replies=0), "one-more"),
        ],
    ),
    Scenario("fast: where the disk is not waited for", [*batches(persist_mode="async"), begin()]),
    Scenario(
        "fast: a counter",
        [
            *batches(allow_msg_counter=True),
            begin(payload="", Nats_Incr="+2"),
            part(2, payload="", Nats_Incr="+3"),
            part(3, payload="", replies=2),
            part(1, COMMIT, payload="", replies=1, Nats_Incr="+1"),
            api("STREAM.MSG.GET.S", {"last_by_subj": "a"}),
        ],
    ),
]
