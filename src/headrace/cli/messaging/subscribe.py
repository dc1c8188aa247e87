"""``headrace sub``, ``headrace consumer sub`` and ``next``: messages as they come, or as they are taken."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from datetime import datetime
from itertools import count as numbers_from
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...api.consumers import ConsumerConfig
from ...api.times import format_time
from ...client.jetstream.pull import PriorityOptions
from ...errors import HeadraceError
from ...files import opened
from ...quantities import counted
from ..shared.errors import Failure
from ..shared.messages import Arrivals, document, text, time_of
from ..shared.names import CONSUMER, STREAM
from ..shared.units import DURATION, MOMENT
from ..shared.verbs import Session, online

if TYPE_CHECKING:
    from ...client import Consumer, JetStreamMessage, Message


class Show:
    """Shows received messages one after the other.

    Args:
        session: its output is written to.
        raw: payloads alone, one a line.
        dump: a directory that gets a file for each, or ``-``: to standard output, each ended by NUL.
    """

    def __init__(
        self,
        session: Session,
        *,
        raw: bool,
        dump: str = "",
    ) -> None:
        self._dump = dump
        self._output = session.output
        self._raw = raw
        self._numbers = numbers_from(1)

    def message(self, message: Message) -> None:
        """One of a subscription."""
        number = next(self._numbers)
        reply = f" with reply {message.reply}" if message.reply else ""
        first = f"[#{number}] Received on {message.subject!r}{reply}"
        self._show(number, first, message, {"reply": message.reply})

    def stored(self, message: JetStreamMessage) -> None:
        """One of a stream."""
        of, number = message.metadata, next(self._numbers)
        first = (
            f"[#{number}] Received on {message.subject!r}, stream {of.stream}, "
            f"sequence {of.stream_seq}, {time_of(of.timestamp_ns)}"
        )
        more = {"stream": of.stream, "seq": of.stream_seq, "time": time_of(of.timestamp_ns)}
        more |= {"delivered": of.delivered, "pending": of.pending}
        self._show(number, first, message, more)

    def _show(self, number: int, first: str, message: Message, more: dict[str, Any]) -> None:
        if self._dump:
            said = document(message.subject, message.payload, message.headers, **more)
            _dump(self._dump, number, json.dumps(said, ensure_ascii=False))
        elif not self._output.is_text:
            said = document(message.subject, message.payload, message.headers, **more)
            self._output.line(said, "")
        elif self._raw:
            sys.stdout.flush()
            sys.stdout.buffer.write(message.payload + b"\n")
        else:
            print(text(first, message.payload, message.headers))
        sys.stdout.flush()


def _dump(place: str, number: int, text: str) -> None:
    """Raises Failure: the directory cannot be written to, or has such a file."""
    if place == "-":
        sys.stdout.write(f"{text}\0")
        return
    path = Path(place) / f"{number}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with opened(path, "x") as file:
            file.write(f"{text}\n")
    except OSError as error:
        raise Failure(f"--dump: {path}: {error.strerror}") from None


_STARTS = ("everything", "new", "last", "since", "start_sequence")


@online(
    click.argument("subjects", nargs=-1, metavar="[SUBJECT]…"),
    click.option(
        "--queue", metavar="NAME", default="", help="take turns with others of this queue"
    ),
    click.option("-r", "--raw", is_flag=True, help="payloads alone"),
    click.option(
        "--dump",
        metavar="DIR",
        default="",
        help="a JSON file there for each; -: to standard output, each ended by NUL",
    ),
    click.option(
        "--count", type=click.IntRange(1), default=None, help="end after this many messages"
    ),
    click.option("--wait", type=DURATION, default=None, help="end when so long none came"),
    click.option(
        "--stream", metavar="NAME", default="", help="read this stream, with the options below"
    ),
    click.option("--durable", metavar="NAME", default="", help="with this consumer of the stream"),
    click.option("--terminate-at-end", "ends", is_flag=True, help="end behind the stream's last"),
    click.option("--all", "everything", is_flag=True, help="from the stream's first message"),
    click.option("--new", is_flag=True, help="only what comes from now on"),
    click.option("--last", is_flag=True, help="from the stream's last message"),
    click.option(
        "--since", type=MOMENT, default=None, metavar="TIME", help="from a time, or 1h ago"
    ),
    click.option("--start-sequence", type=click.IntRange(1), default=None, help="from a sequence"),
)
async def sub(
    session: Session,
    subjects: tuple[str, ...],
    queue: str,
    raw: bool,
    dump: str,
    count: int | None,
    wait: float | None,
    stream: str,
    durable: str,
    ends: bool,
    **starts: Any,
) -> None:
    """Show messages as they come, until Ctrl-C.

    \b
    headrace sub 'orders.>'
    headrace sub 'orders.>' --all            what the stream has, then what comes
    headrace sub --stream ORDERS --since 1h

    With --stream, or one of the options that say where to begin, a stream is read in order, without leaving
    a trace on it; otherwise only what is published from now on is seen.
    """
    begins = [name for name in _STARTS if starts[name]]
    if len(begins) > 1:
        raise Failure("give one place to begin: --all, --new, --last, --since, …")
    if not subjects and not stream:
        raise Failure("give a subject, such as 'orders.>', or --stream")
    show = Show(session, raw=raw, dump=dump)
    if durable:
        if subjects or begins or ends or not stream:
            raise Failure(
                "--durable goes with --stream, and says itself what it reads and from where"
            )

        found = await session.js.consumer(stream, durable)
        session.output.note(f"reading with consumer {durable} of stream {stream}; Ctrl-C ends it")
        await show_each(session, found, show, count, wait, ack=True)
        return
    words = " ".join(subjects) or "everything"
    if stream or begins or ends:
        stream = stream or await _stream_of(session, subjects[0])
        session.output.note(f"reading {words} of stream {stream}; Ctrl-C ends it")
        reading = _stored(session, stream, subjects, starts, ends=ends)
        async with aclosing(reading) as messages:
            await _each(messages, show.stored, count, wait)
        return
    arrivals = Arrivals()
    for each in subjects:
        await session.connection.subscribe(each, queue=queue, callback=arrivals.put)
    await session.connection.flush()
    session.output.note(f"listening on {words}; Ctrl-C ends it")
    await _each(arrivals, show.message, count, wait)
    if arrivals.dropped:
        session.output.note(
            f"{counted(arrivals.dropped, 'message')} came too fast to be shown: lost here"
        )


async def _each(
    messages: AsyncIterator[Any], show: Any, count: int | None, wait: float | None
) -> None:
    """Show up to ``count``, until none comes for ``wait`` seconds."""
    shown = 0
    while count is None or shown < count:
        try:
            async with asyncio.timeout(wait):
                message = await anext(messages)
        except (TimeoutError, StopAsyncIteration):
            return
        show(message)
        shown += 1


async def _stream_of(session: Session, subject: str) -> str:
    names = [name async for name in session.js.stream_names(subject=subject)]
    if len(names) != 1:
        which = f"several streams have it: {', '.join(names)}" if names else "no stream has it"
        raise Failure(f"subject {subject!r}: {which}; --stream says which one to read")
    return names[0]


async def _stored(
    session: Session,
    stream: str,
    subjects: tuple[str, ...],
    starts: dict[str, Any],
    *,
    ends: bool,
) -> AsyncGenerator[JetStreamMessage, None]:
    config = ConsumerConfig(filter_subjects=subjects, **start_of(starts))
    ordered = await session.js.ordered_consumer(stream, config)
    try:
        if ends and not (await ordered.info()).num_pending:
            return
        async with ordered.consume() as messages:
            async for message in messages:
                yield message
                if ends and not message.metadata.pending:
                    return
    finally:
        with suppress(HeadraceError):  # the server removes it by itself, when it is not used
            await ordered.delete()


def start_of(starts: dict[str, Any]) -> dict[str, Any]:
    """The fields of a consumer's configuration that say where to begin."""
    if starts["since"]:
        moment: datetime = starts["since"]
        text = format_time(round(moment.timestamp() * 1e9))
        return {"deliver_policy": "by_start_time", "opt_start_time": text}
    if starts["start_sequence"]:
        number = starts["start_sequence"]
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": number}
    for name in ("new", "last"):
        if starts[name]:
            return {"deliver_policy": name}
    return {"deliver_policy": "all"}


_AT_ONCE = 100  # what was pulled and not shown when it ends comes again, so not many
_PULL_S = 30.0


@online(
    STREAM,
    CONSUMER,
    click.option(
        "--count", type=click.IntRange(1), default=None, help="end after this many messages"
    ),
    click.option("--wait", type=DURATION, default=None, help="end when so long none came"),
    click.option("--ack/--no-ack", default=True, help="acknowledge what was shown (yes)"),
    click.option("--group", metavar="NAME", default="", help="as a client of this priority group"),
    click.option("-r", "--raw", is_flag=True, help="payloads alone"),
    name="sub",
)
async def consumer_sub(
    session: Session,
    stream: str,
    consumer: str,
    count: int | None,
    wait: float | None,
    ack: bool,
    group: str,
    raw: bool,
) -> None:
    """Show the messages of a consumer as they come, and acknowledge them, until Ctrl-C.

    \b
    headrace consumer sub ORDERS billing
    headrace consumer sub ORDERS billing --no-ack --count 3     they come again

    It pulls, or listens where the consumer pushes. Others who read with the same consumer get the rest.
    """
    found = await session.js.consumer(stream, consumer)
    session.output.note(f"reading with consumer {consumer} of stream {stream}; Ctrl-C ends it")
    await show_each(session, found, Show(session, raw=raw), count, wait, ack=ack, group=group)


async def show_each(
    session: Session,
    consumer: Consumer,
    show: Show,
    count: int | None,
    wait: float | None,
    *,
    ack: bool,
    group: str = "",
) -> None:
    """Show up to ``count`` messages, until none comes for ``wait`` seconds, and acknowledge each."""
    config = (consumer.cached_info or await consumer.info()).config
    if config.deliver_subject:
        coming = _pushed(consumer, count, wait)
    else:
        coming = _pulled(consumer, count, wait, group)
    async with aclosing(coming) as messages:
        async for message in messages:
            show.stored(message)
            if ack and config.ack_policy != "none":
                message.ack()
    await session.connection.flush()


async def _pulled(
    consumer: Consumer, count: int | None, wait: float | None, group: str
) -> AsyncGenerator[JetStreamMessage, None]:
    priority: PriorityOptions = {"group": group} if group else {}
    left = count
    while left is None or left > 0:
        size = _AT_ONCE if left is None else min(left, _AT_ONCE)
        batch = await consumer.fetch(size, max_wait=wait or _PULL_S, **priority)
        if not batch and wait is not None:
            return
        left = None if left is None else left - len(batch)
        for message in batch:
            yield message


async def _pushed(
    consumer: Consumer, count: int | None, wait: float | None
) -> AsyncGenerator[JetStreamMessage, None]:
    left = count
    async with await consumer.listen() as messages:
        while left is None or left > 0:
            try:
                async with asyncio.timeout(wait):
                    message = await anext(messages)
            except (TimeoutError, StopAsyncIteration):
                return
            left = None if left is None else left - 1
            yield message


_PULL_MAX = 1000


@online(
    STREAM,
    CONSUMER,
    click.option("--count", type=click.IntRange(1), default=1, help="how many to take (1)"),
    click.option("--wait", type=DURATION, default=None, help="wait so long for them (--timeout)"),
    click.option("--ack/--no-ack", default=True, help="acknowledge what was shown (yes)"),
    click.option("--nak", is_flag=True, help="have them delivered again"),
    click.option("--term", is_flag=True, help="have them never delivered again"),
    click.option("--group", metavar="NAME", default="", help="as a client of this priority group"),
    click.option("-r", "--raw", is_flag=True, help="payloads alone"),
    name="next",
)
async def take(
    session: Session,
    stream: str,
    consumer: str,
    count: int,
    wait: float | None,
    ack: bool,
    nak: bool,
    term: bool,
    group: str,
    raw: bool,
) -> int:
    """Take messages of a pull consumer, show them, and acknowledge them.

    \b
    headrace consumer next ORDERS billing --count 10
    headrace consumer next ORDERS billing --no-ack     they come again when the ack wait is over

    The status is 1 if no message came.
    """
    if nak and term:
        raise Failure("give one of --nak and --term")
    found = await session.js.consumer(stream, consumer)
    if found.cached_info is not None and found.cached_info.config.deliver_subject:
        subject = found.cached_info.config.deliver_subject
        raise Failure(
            f"consumer {consumer} pushes to {subject}; there is nothing to pull",
            f"headrace sub {subject}    shows what it pushes",
        )
    show = Show(session, raw=raw)
    shown = 0
    priority: PriorityOptions = {"group": group} if group else {}
    seconds = session.where.timeout if wait is None else wait
    while shown < count:
        batch = await found.fetch(
            min(count - shown, _PULL_MAX), max_wait=seconds, eager=True, **priority
        )
        if not batch:
            break
        for message in batch:
            show.stored(message)
            shown += 1
            if nak:
                message.nak()
            elif term:
                message.term()
            elif ack:
                message.ack()
    await session.connection.flush()
    if shown < count:
        session.output.note(f"{shown or 'no'} message{'s' * (shown > 1)} within {seconds:g} s")
    return 0 if shown else 1
