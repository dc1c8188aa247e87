"""``headrace stream copy FROM TO``."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Final

import click

from ...client import JetStream, Stream
from ...findings.streams import group_of_queue
from ..shared.connection_options import Where, where
from ..shared.errors import Failure
from ..shared.names import STREAM
from ..shared.progress import progress, telling
from ..shared.verbs import Session, connected, online
from .copying import (
    CopiedTo,
    Following,
    changes_for,
    find,
    follow,
    is_here,
    place_of,
    transfer,
    way_back,
)

_LOOK_S: Final = 1.0


@online(
    STREAM,
    click.argument("to", metavar="TO"),
    click.option("--to-server", metavar="URL", default="", help="the server the copy goes to"),
    click.option("--to-context", metavar="NAME", default="", help="a context for that server"),
    click.option("--to-creds", metavar="FILE", default="", help="credentials for that server"),
    click.option("--follow", is_flag=True, help="go on with what comes, until interrupted"),
    click.option("--consumers/--no-consumers", default=True, help="consumers, too (yes)"),
    click.option("--replicas", type=click.IntRange(1, 5), default=None, help="copies of the copy"),
    click.option(
        "--subjects", metavar="SUBJECT", multiple=True, help="other subjects for the copy"
    ),
    click.option(
        "--after",
        metavar="SEQUENCE",
        type=click.IntRange(0),
        default=None,
        help="go on behind this sequence of FROM, if TO cannot tell",
    ),
    click.option("--progress/--no-progress", "bar", default=True, help="draw a bar (yes)"),
)
async def copy(
    session: Session,
    stream: str,
    to: str,
    to_server: str,
    to_context: str,
    to_creds: str,
    follow: bool,
    consumers: bool,
    replicas: int | None,
    subjects: tuple[str, ...],
    after: int | None,
    bar: bool,
) -> None:
    """Copy a stream to another server, and go on where the last run stopped; or once, on the same server.

    \b
    headrace stream copy ORDERS ORDERS --to-context cluster --replicas 3
    headrace stream copy ORDERS ORDERS --to-server nats://other:4222 --follow
    headrace stream copy ORDERS KEPT --subjects 'kept.>'

    The first run makes the stream TO as FROM is: sequences, times, consumers. What comes later is published
    there in order: it gets sequences and times of its own, and where it comes from in the header
    Headrace-Copied-Sequence. Nothing is copied twice, whatever is interrupted, as long as nobody else
    publishes to TO meanwhile.

    On the same server TO is a copy of this moment: its messages keep their subjects, and it listens on other
    ones, those of --subjects or else its own name. To go on there, make a mirror instead.
    """
    origin = await session.js.stream(stream)
    if (group := group_of_queue((await origin.info()).config)) is not None:
        raise Failure(
            f"stream {stream} is the work queue of group {group.name!r} of stream {group.stream!r}: its copy "
            "would take nothing of that stream any more. Stop who publishes and the members, and move all "
            "of it",
            "headrace stream backup --all DIR",
            "headrace stream restore --all DIR --server nats://…    it goes on where it was",
        )
    how = _How(to, replicas, subjects, consumers, bar)
    if not (to_server or to_context or to_creds):
        await _copy_here(session, origin, how, goes_on=follow or after is not None)
        return
    place = _target(session.where, to_server, to_context, to_creds)
    async with connected(place, session.output) as other:
        if await is_here(session, origin, other):
            await _copy_here(session, origin, how, goes_on=follow or after is not None)
            return
        made = await find(other.js, to)
        created = made is None
        if made is None:
            way_back((await origin.info()).config)
            made = await _begin(session, origin, other.js, how)
            if session.output.is_text:
                session.output.show({}, f"copied stream {stream} to {to}")
        spot = await place_of(made, origin) if after is None else await _after(made, after)
        count = await _go_on(session, origin, other.js, to, spot, endless=follow, bar=bar)
        session.output.show(
            {"stream": to, "created": created, "copied": count},
            f"copied {count:,} later messages of {stream} to {to}",
        )


def _target(origin: Where, server: str, context: str, creds: str) -> Where:
    if not context:
        server = server or origin.servers  # with other credentials it may be another account
    given = {"server": server, "context": context, "creds": creds, "timeout": origin.timeout}
    environ = {key: value for key, value in os.environ.items() if not key.startswith("NATS_")}
    return where({key: value for key, value in given.items() if value}, environ)


async def _after(copy: Stream, sequence: int) -> CopiedTo:
    return CopiedTo(sequence, (await copy.info()).state.last_seq)


@dataclass(frozen=True, slots=True)
class _How:
    """How the copy is to be made."""

    to: str
    replicas: int | None
    subjects: tuple[str, ...]
    consumers: bool
    bar: bool


async def _copy_here(session: Session, origin: Stream, how: _How, *, goes_on: bool) -> None:
    """Copy to another stream of the same server. What would be refused is found before anything is moved."""
    if goes_on:
        raise Failure(
            "a copy on the same server is of one moment; one that goes on is a mirror",
            f"headrace stream create {how.to} --mirror {origin.name}    makes one",
            status=2,
        )
    if how.to == origin.name:
        raise Failure("a stream cannot be copied to itself; give the copy another name", status=2)
    if await find(session.js, how.to) is not None:
        raise Failure(
            f"there is a stream {how.to}, and on the same server a copy is made once",
            f"headrace stream rm {how.to}    makes room for it",
        )
    subjects = how.subjects or (how.to,)
    for subject in subjects:
        async for name in session.js.stream_names(subject=subject):
            raise Failure(
                f"subject {subject!r} is of stream {name}; two streams of one server share none",
                "--subjects 'SUBJECT'    gives the copy one of its own",
            )
    await _begin(session, origin, session.js, replace(how, subjects=subjects))
    session.output.show(
        {"stream": how.to, "created": True, "copied": 0},
        f"copied stream {origin.name} to {how.to}, which listens on {', '.join(subjects)}",
    )


async def _begin(session: Session, origin: Stream, target: JetStream, how: _How) -> Stream:
    info = await origin.info()
    changes = changes_for(info, how.to, how.replicas, how.subjects)
    total = info.state.bytes
    with progress(session.output, origin.name, total, of_bytes=True, wanted=how.bar) as advance:
        return await transfer(
            origin, target, changes, consumers=how.consumers, progress=telling(advance)
        )


async def _go_on(
    session: Session,
    origin: Stream,
    target: JetStream,
    to: str,
    spot: CopiedTo,
    *,
    endless: bool,
    bar: bool,
) -> int:
    """Copy what came after; until there is no more, or without end."""
    last_seq = (await origin.info()).state.last_seq
    following: Following = await follow(origin, target, spot)
    count = 0
    with progress(session.output, to, last_seq - spot.position, wanted=bar) as advance:
        while endless or following.place.position < last_seq:
            came = await following.some(_LOOK_S)
            if not came and not endless:
                break  # the rest was deleted
            count += came
            advance(came)
    return count
