"""``headrace pub``: messages from words, lines of standard input, or a schedule."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import click

from ...api.errors import Errors
from ...client.publish.atomic_batch import BatchRefusedError
from ...errors import ConfigurationError
from ..shared.errors import Failure
from ..shared.messages import HEADER, fill_in, headers_of, payload_of
from ..shared.output import progress
from ..shared.units import DURATION, Parsed, counted
from ..shared.verbs import Session, online

LINE_BYTES_MAX: Final = 64 << 20
"""A longer line is an error: no server takes a message of that size."""

_READ_BYTES: Final = 1 << 16
_BLOCKS_AHEAD: Final = 16


async def lines_of_input() -> AsyncIterator[bytes]:
    """Each line without its end. The event loop goes on between them, however long one takes to come.

    Raises:
        Failure: a line is longer than ``LINE_BYTES_MAX``, or standard input cannot be read.
    """
    loop = asyncio.get_running_loop()
    blocks: asyncio.Queue[bytes | OSError] = asyncio.Queue(_BLOCKS_AHEAD)
    descriptor = sys.stdin.fileno()

    def read() -> None:
        """In a thread that may wait for ever and ends with the process: no lock of Python's is held."""
        while True:
            try:
                block: bytes | OSError = os.read(descriptor, _READ_BYTES)
            except OSError as error:
                block = error
            putting = blocks.put(block)
            try:
                asyncio.run_coroutine_threadsafe(putting, loop).result()
            except (RuntimeError, CancelledError):
                putting.close()
                return  # the loop has ended, or does
            if not block or isinstance(block, OSError):
                return

    threading.Thread(target=read, name="standard input", daemon=True).start()
    begun: list[bytes] = []  # of a line whose end has not come
    size = 0
    while block := await blocks.get():
        if isinstance(block, OSError):
            raise Failure(f"standard input: {block.strerror}")
        first, *others = block.split(b"\n")
        begun.append(first)
        size += len(first)
        for other in others:
            yield b"".join(begun).removesuffix(b"\r")
            begun, size = [other], len(other)
        if size > LINE_BYTES_MAX:
            raise Failure(f"a line of standard input is longer than {LINE_BYTES_MAX >> 20} MiB")
    if size:
        yield b"".join(begun)


def _moment(text: str) -> datetime:
    """A time that a person types. Raises ValueError."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time; accepted: 2026-11-22T10:30:00Z, '2026-11-22 10:30' (UTC)"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


SCHEDULE_OPTIONS: Final = (
    click.option(
        "--target", metavar="SUBJECT", default="", help="have the stream publish it there later"
    ),
    click.option(
        "--at", type=Parsed("time", _moment), default=None, metavar="TIME", help="at this time"
    ),
    click.option("--in", "within", type=DURATION, default=0.0, help="after so long"),
    click.option("--every", type=DURATION, default=0.0, help="again and again, at least 1s apart"),
    click.option(
        "--cron",
        metavar="FIELDS",
        default="",
        help="'30 6 * * *', '0 30 6 * * *' (seconds first), @daily, …",
    ),
    click.option(
        "--time-zone", metavar="NAME", default="", help="of --cron, as Europe/Berlin (UTC)"
    ),
)


@dataclass(frozen=True)
class Plan:
    """When, and where to.

    Attributes:
        target: the subject it is published to.
        at: once.
        every: again and again, seconds.
        cron: again and again, by fields; in ``time_zone``.
    """

    target: str
    at: datetime | None
    every: float
    cron: str
    time_zone: str

    @classmethod
    def of(
        cls,
        target: str,
        at: datetime | None,
        within: float,
        every: float,
        cron: str,
        time_zone: str,
        now: datetime | None = None,
    ) -> Plan | None:
        """What the options say; None if they say nothing. Raises Failure if they do not go together."""
        given = [
            name
            for name, value in (
                ("--at", at),
                ("--in", within),
                ("--every", every),
                ("--cron", cron),
            )
            if value
        ]
        if not target:
            if given or time_zone:
                raise Failure(
                    f"{(given or ['--time-zone'])[0]} needs --target: where it is published then"
                )
            return None
        if len(given) != 1:
            raise Failure("--target needs one of --at, --in, --every and --cron")
        if time_zone and not cron:
            raise Failure("--time-zone is of --cron; --at takes a time with its zone")
        if within:
            at = (now or datetime.now(UTC)) + timedelta(seconds=within)
        return cls(target, at, every, cron, time_zone)

    def arguments(self) -> dict[str, Any]:
        """For ``JetStream.schedule``."""
        return {
            "target": self.target,
            "at": self.at,
            "every": self.every,
            "cron": self.cron,
            "time_zone": self.time_zone,
        }

    def when(self) -> str:
        """In words."""
        if self.at is not None:
            return (
                f"at {self.at.astimezone(UTC).isoformat(timespec='seconds').replace('+00:00', 'Z')}"
            )
        if self.every:
            return f"every {self.every:g} s"
        return f"by {self.cron!r}{f' in {self.time_zone}' if self.time_zone else ''}"


_NOT_ALLOWED: Final = Errors.BATCH_DISABLED.err_code


class Made(NamedTuple):
    """A message, filled in."""

    subject: str
    payload: bytes
    headers: dict[str, list[str]]
    msg_id: str


@online(
    click.argument("subject"),
    click.argument("body", required=False),
    HEADER,
    click.option("--reply", metavar="SUBJECT", default="", help="where answers are to go"),
    click.option("--count", type=click.IntRange(1), default=1, help="how many to publish"),
    click.option(
        "--lines", is_flag=True, help="each line of standard input; BODY may contain {{Line}}"
    ),
    click.option("-J", "--jetstream", is_flag=True, help="wait until a stream has each"),
    click.option("--atomic", is_flag=True, help="a stream takes all of them, or none"),
    click.option("--msg-id", metavar="ID", default="", help="stored once (with --jetstream)"),
    *SCHEDULE_OPTIONS,
)
async def pub(
    session: Session,
    subject: str,
    body: str | None,
    header: tuple[str, ...],
    reply: str,
    count: int,
    lines: bool,
    jetstream: bool,
    atomic: bool,
    msg_id: str,
    target: str,
    at: datetime | None,
    within: float,
    every: float,
    cron: str,
    time_zone: str,
) -> None:
    """Publish BODY, or what standard input has, to SUBJECT.

    \b
    headrace pub orders.new 'a first order'
    headrace pub orders.new 'order {{Count}} of {{TimeStamp}}' --count 10
    headrace pub orders.new -H Customer:ann --jetstream < order.json
    tail -f orders.jsonl | headrace pub orders.new --lines --jetstream
    headrace pub orders.plan 'remind ann' --target orders.due --in 2h

    Subject, body, headers and id may contain {{Count}}, {{Time}}, {{TimeStamp}}, {{Unix}}, {{UnixNano}},
    {{ID}} and {{Random 10 20}} (10 to 20 letters). Without --jetstream nobody confirms that anybody received
    it. An atomic batch needs a stream with --allow-atomic and has 1,000 messages at most.

    With --target the stream publishes BODY there later: SUBJECT is the schedule's own, another one there
    replaces it, and stream purge --subject ends it. The stream needs --allow-schedules and both subjects.
    """
    plan = Plan.of(target, at, within, every, cron, time_zone)
    _check(count, lines, atomic, reply, jetstream, msg_id, plan)
    made = _made(subject, body, headers_of(header), msg_id, count, lines)
    if plan is not None:
        await _schedule(session, plan, made)
    elif atomic:
        await _together(session, made)
    elif jetstream:
        await _stored(session, made, None if lines else count)
    else:
        await _sent(session, made, None if lines else count, reply)


def _check(
    count: int,
    lines: bool,
    atomic: bool,
    reply: str,
    jetstream: bool,
    msg_id: str,
    plan: Plan | None,
) -> None:
    """Raises Failure for options that do not go together."""
    if lines and count > 1:
        raise Failure("give --lines or --count, not both")
    if plan is not None and (atomic or lines or count > 1):
        raise Failure("a schedule is one message: no --atomic, --lines or --count with --target")
    if (atomic or plan is not None) and reply:
        raise Failure("--reply does not go with --atomic or --target")
    if msg_id and not (jetstream or atomic):
        raise Failure("--msg-id needs --jetstream: only a stream looks at it")


async def _made(
    subject: str,
    body: str | None,
    headers: dict[str, list[str]],
    msg_id: str,
    count: int,
    lines: bool,
) -> AsyncIterator[Made]:
    """The messages, one after the other. What comes from standard input is not a template."""
    is_template = body not in (None, "-")

    def make(data: bytes, number: int, line: str = "") -> Made:
        def filled(text: str) -> str:
            return fill_in(text, number, line=line)

        if is_template:
            data = filled(body or "").encode()
        named = {name: [filled(each) for each in of] for name, of in headers.items()}
        return Made(filled(subject), data, named, filled(msg_id))

    if lines:
        number = 0
        async for line in lines_of_input():
            number += 1
            yield make(line, number, line.decode(errors="replace"))
        return
    payload = payload_of(body)
    for number in range(1, count + 1):
        yield make(payload, number)


async def _sent(
    session: Session,
    made: AsyncIterator[Made],
    count: int | None,
    reply: str,
) -> None:
    sent = 0
    subjects: set[str] = set()
    with progress(session.output, "publishing", count, wanted=count != 1) as advance:
        async for each in made:
            await session.connection.publish(
                each.subject, each.payload, headers=each.headers, reply=reply
            )
            sent += 1
            if len(subjects) <= 1:
                subjects.add(each.subject)
            advance(1)
    await session.connection.flush()
    where = subjects.pop() if len(subjects) == 1 else "several subjects"
    text = f"published {counted(sent, 'message')} to {where}" if sent else "nothing to publish"
    session.output.show({"subject": where, "published": sent}, text)


async def _stored(session: Session, made: AsyncIterator[Made], count: int | None) -> None:
    stored: list[dict[str, Any]] = []
    try:
        with progress(session.output, "publishing", count, wanted=count != 1) as advance:
            async for each in made:
                ack = await session.js.publish(
                    each.subject, each.payload, headers=each.headers, msg_id=each.msg_id
                )
                stored.append({"stream": ack.stream, "seq": ack.seq, "duplicate": ack.duplicate})
                advance(1)
    except BaseException:  # also Ctrl-C: whoever goes on has to know where
        if stored:
            session.output.note(f"stored {counted(len(stored), 'message')} before that")
        raise
    if not stored:
        session.output.show(stored, "nothing to publish")
        return
    last = stored[-1]
    again = sum(1 for each in stored if each["duplicate"])
    text = f"stored {counted(len(stored), 'message')} in stream {last['stream']}, sequence {last['seq']}"
    text += f", {again:,} of them there already" if again else ""
    session.output.show(stored, text)


async def _together(session: Session, made: AsyncIterator[Made]) -> None:
    try:
        batch = session.js.batch()
        number = 0
        async for each in made:
            number += 1
            batch.add(each.subject, each.payload, headers=each.headers, msg_id=each.msg_id)
        if not number:
            session.output.show({}, "nothing to publish")
            return
        ack = await batch.commit()
    except BatchRefusedError as error:
        step = "headrace stream edit STREAM --allow-atomic    lets a stream take atomic batches"
        steps = (step,) if error.err_code == _NOT_ALLOWED else ()
        raise Failure(f"nothing was stored: {error}", *steps) from None
    except ConfigurationError as error:
        raise Failure(f"nothing was stored: {error}") from None
    told = {"stream": ack.stream, "first": batch.first_sequence, "last": ack.seq}
    text = f"stored {counted(number, 'message')} together in stream {ack.stream}"
    text += f", sequences {batch.first_sequence} to {ack.seq}"
    session.output.show(told, text)


async def _schedule(session: Session, plan: Plan, made: AsyncIterator[Made]) -> None:
    async for each in made:
        try:
            ack = await session.js.schedule(
                each.subject, each.payload, headers=each.headers, **plan.arguments()
            )
        except ConfigurationError as error:
            raise Failure(str(error)) from None
        told = {"stream": ack.stream, "seq": ack.seq, "target": plan.target}
        session.output.show(
            told,
            f"stream {ack.stream} publishes it to {plan.target} {plan.when()}; "
            f"headrace stream purge {ack.stream} --subject {each.subject}    ends that",
        )
