"""Watch a group: who owns which partition, which instance is pinned, what waits.

It looks again when the record changes, when an instance is pinned or unpinned, when a consumer comes or goes
(the server's advisories say so), and otherwise once a second.
"""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TextIO, TypeVar

import click

from ...errors import HeadraceError
from ...groups import ElasticGroup, GroupNotFoundError, StaticGroup
from ...groups.autoscale import UNANSWERED, rest_after
from ...groups.lag import GroupLag, Rates, measure, rates
from ...groups.server.bucket import Changes, Records
from ...groups.server.consumers import stream_of
from ...groups.server.presence import who_is_there
from ..shared.output import Form, one_of_many
from ..shared.verbs import Declare
from .text import line, table
from .text import table_document as document

if TYPE_CHECKING:
    from ...client import JetStream

EVERY_S: Final = 1.0
TROUBLES_S: Final = 5.0  # between looks for what keeps messages away
PRESENT_S: Final = 0.1  # an instance that is busy for longer is shown by its id
QUIET_S: Final = 0.1  # several events at once are one reason to look

G = TypeVar("G", StaticGroup, ElasticGroup)


class Seen(NamedTuple):
    """One look, and the rates since the one before; ``problem`` if the server did not answer.

    Attributes:
        names: of the instances that say who they are, by the generations that they own.
    """

    look: GroupLag | None
    rates: Rates | None = None
    names: Mapping[int, str] = {}
    problem: str = ""


WATCH_OPTIONS: Final[tuple[Declare, ...]] = (
    click.option("--once", is_flag=True, help="look once and end"),
    click.option(
        "--every",
        type=float,
        default=EVERY_S,
        metavar="SECONDS",
        help=f"seconds between looks where nothing happens ({EVERY_S:g})",
    ),
)


async def watch_command(js: JetStream, args: SimpleNamespace) -> int:
    """``headrace group static|elastic watch``."""
    asked = (args.stream, args.group)
    if args.kind == "static":
        await watch(js, StaticGroup, *asked, once=args.once, every=args.every, form=args.form)
    else:
        await watch(js, ElasticGroup, *asked, once=args.once, every=args.every, form=args.form)
    return 0


async def watch(
    js: JetStream,
    kind: type[G],
    stream: str,
    group: str,
    *,
    once: bool = False,
    every: float = EVERY_S,
    form: Form = "text",
    out: TextIO | None = None,
) -> None:
    """Show a group until it is deleted: a table redrawn in place on a terminal, otherwise a line whenever
    something changed; with another ``form`` a document for each look.

    Raises GroupNotFoundError, GroupRecordError.
    """
    out = out or sys.stdout
    if once:
        record = await Records(js, kind).get(stream, group)
        names, look = await _names(js, record), await measure(js, record)
        found = document(look, None, names)
        lines = table(look, None, names) if form == "text" else [one_of_many(found, form)]
        print("\n".join(lines), file=out, flush=True)
        return
    show: _Documents | _Screen | _Log = _Screen(out) if out.isatty() else _Log(out)
    if form != "text":
        show = _Documents(out, form)
    async with aclosing(looks(js, kind, stream, group, every=every)) as seen:
        async for each in seen:
            show.show(each)


async def looks(
    js: JetStream,
    kind: type[G],
    stream: str,
    group: str,
    *,
    every: float = EVERY_S,
) -> AsyncGenerator[Seen, None]:
    """Look at a group whenever something happens, and every so many seconds; until it is deleted.

    Raises GroupNotFoundError, GroupRecordError.
    """
    records = Records(js, kind)
    news = _News(await records.get(stream, group))
    async with _heard(js, records, news):
        before: GroupLag | None = None
        clock = asyncio.get_running_loop().time
        examined_at, revision = -TROUBLES_S, 0
        while True:
            began = clock()
            is_due = began - examined_at >= TROUBLES_S or news.record.revision != revision
            try:
                names = await _names(js, news.record)
                look = await measure(js, news.record, troubles=is_due)
                if not is_due and before is not None:
                    look = dataclasses.replace(look, troubles=before.troubles)
                if is_due:
                    examined_at, revision = began, news.record.revision
            except UNANSWERED as error:
                yield Seen(None, problem=str(error))
            else:
                yield Seen(look, None if before is None else rates(before, look), names)
                before = look
            await news.wait(rest_after(clock() - began, every))
            if news.is_over:
                if news.error is not None:
                    raise news.error
                return


async def _names(js: JetStream, record: StaticGroup | ElasticGroup) -> dict[int, str]:
    """Who owns which generation, as far as instances say so."""
    found = await who_is_there(js, type(record), record.stream, record.name, within=PRESENT_S)
    return {number: each.instance for each in found for number in each.generations}


class _News(Generic[G]):
    """What the server told since the last look."""

    def __init__(self, record: G) -> None:
        self.record: G = record
        self.is_over = False
        self.error: Exception | None = None
        self._event = asyncio.Event()

    def come(self, *_: object) -> None:
        self._event.set()

    def end(self, error: Exception | None = None) -> None:
        self.is_over = True
        self.error = error
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Until something comes, or for so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
                await asyncio.sleep(QUIET_S)
        except TimeoutError:
            pass  # nothing happened
        self._event.clear()


@asynccontextmanager
async def _heard(js: JetStream, records: Records[G], news: _News[G]) -> AsyncIterator[None]:
    """Listen to what happens to the group."""
    record = news.record
    subject = f"$JS.EVENT.ADVISORY.CONSUMER.*.{stream_of(record)}.*"
    async with (
        await js.connection.subscribe(subject, callback=news.come),
        await records.watch(record.stream, record.name) as changes,
    ):
        following = asyncio.create_task(_follow(changes, news), name=f"watch of {record.name}")
        try:
            yield
        finally:
            following.cancel()
            await asyncio.wait([following])


async def _follow(changes: Changes[G], news: _News[G]) -> None:
    try:
        async for record in changes:
            if record is None:
                return news.end()
            news.record = record
            news.come()
    except HeadraceError as error:
        return news.end(error)
    return news.end(GroupNotFoundError("the group's record is not watched any more"))


# Showing


class _Documents:
    """One document per look."""

    def __init__(self, out: TextIO, form: Form) -> None:
        self._out = out
        self._form = form

    def show(self, seen: Seen) -> None:
        shown = (
            {"problem": seen.problem}
            if seen.look is None
            else document(seen.look, seen.rates, seen.names)
        )
        print(one_of_many(shown, self._form), file=self._out, flush=True)


class _Log:
    """A line whenever it would be another one."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last = ""

    def show(self, seen: Seen) -> None:
        text = seen.problem if seen.look is None else line(seen.look)
        news = text if seen.look is None else text.partition(" ")[2]  # whatever the time is
        if news != self._last:
            self._last = news
            print(text, file=self._out, flush=True)


class _Screen:
    """A table that is drawn over the one before."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._drawn = 0

    def show(self, seen: Seen) -> None:
        width, height = shutil.get_terminal_size()
        if seen.look is None:
            self._out.write(f"\x1b[K{seen.problem}\r")
            self._out.flush()
            return
        lines = table(seen.look, seen.rates, seen.names, height - 1)
        back = f"\x1b[{self._drawn}A" if self._drawn else ""
        body = "".join(f"\x1b[K{text[:width]}\n" for text in lines)
        self._out.write(f"{back}{body}\x1b[J")
        self._out.flush()
        self._drawn = len(lines)
