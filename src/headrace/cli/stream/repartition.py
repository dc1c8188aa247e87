"""``headrace stream repartition STREAM NEW PARTITIONS``."""

from __future__ import annotations

import click

from ...groups import static
from ..shared.asking import may_go_on
from ..shared.errors import Failure
from ..shared.names import STREAM
from ..shared.progress import progress
from ..shared.units import bytes_text, counted
from ..shared.verbs import Session, online
from . import repartitioning
from .numbering import numbering_of
from .repartitioning import BOUNDARY, PARTITIONS_MAX, RepartitionedStreams, look

_AGAIN = "headrace stream repartition {old} {new} {partitions}    goes on with it"
_NEAR = 1000  # so few messages may be missing when nothing can be published any more


@online(
    STREAM,
    click.argument("new", metavar="NEW"),
    click.argument("partitions", type=click.IntRange(1, PARTITIONS_MAX)),
    click.option("--progress/--no-progress", "bar", default=True, help="draw a bar (yes)"),
    destroys=True,
)
async def repartition(session: Session, stream: str, new: str, partitions: int, bar: bool) -> None:
    """Number the subjects of a stream for more or fewer partitions: NEW has all of it, with other numbers.

    \b
    headrace stream repartition SHIPPING SHIPPING8 8 --dry-run
    headrace stream repartition SHIPPING SHIPPING8 8

    For a stream that puts a partition before each subject, as static groups need it. NEW is a mirror while it
    catches up; then it takes the subjects over, with the same sequences and times. Publishers change nothing;
    for a moment nothing can be published. STREAM stays as it is for those who read it, and gets no more
    messages. When they are done, others begin on NEW behind the sequence that is shown.

    Ctrl-C and failures take everything back. After a crash run it again: it goes on.
    """
    js = session.js
    found = await look(js, stream, new, partitions)
    if found.new is None:
        repartitioning.refuse(found.old, partitions)
        await repartitioning.check_numbered(js, stream)
    if not found.is_switched:
        if not may_go_on(session.output, _what(found, new, partitions)):
            return
        await _carry_out(session, found, new, partitions, bar)
        found = await look(js, stream, new, partitions)
    await _tell(session, found, partitions)


def _what(found: RepartitionedStreams, new: str, partitions: int) -> str:
    state, name = found.old.state, found.old.config.name
    count = numbering_of(found.old.config).count
    return (
        f"make stream {new} of {name} with {counted(partitions, 'partition')} instead of {count}: "
        f"{counted(state.messages, 'message')} ({bytes_text(state.bytes)}) are copied, and {new} takes "
        "the subjects over"
    )


async def _carry_out(
    session: Session, found: RepartitionedStreams, new: str, partitions: int, bar: bool
) -> None:
    """All of it, or all is as it was."""
    js, name = session.js, found.old.config.name
    try:
        made = found.new or await repartitioning.begin(js, found.old, new, partitions)
        found = RepartitionedStreams(found.old, made)
        total, shown = found.old.state.last_seq, 0
        with progress(session.output, new, total, wanted=bar) as advance:

            def tell(copied: int) -> None:
                nonlocal shown
                advance(copied - shown)
                shown = copied

            await repartitioning.catch_up(js, found, _NEAR, tell)
            await repartitioning.stop(js, found.old, new)
            await repartitioning.catch_up(js, found, 0, tell)
        await repartitioning.check_numbered(js, name)
        await repartitioning.switch(js, name, new, partitions)
    except BaseException:
        if not await repartitioning.take_back(js, name, new, partitions):
            again = _AGAIN.format(old=name, new=new, partitions=partitions)
            raise Failure(f"stream {new} has the subjects of {name} by now", again) from None
        raise


async def _tell(session: Session, found: RepartitionedStreams, partitions: int) -> None:
    """What has become of it: where others begin, and who has what left in the former stream."""
    assert found.new is not None
    name, new = found.old.config.name, found.new.config.name
    stream = await session.js.stream(name)
    left = {each.name: each.num_pending + each.num_ack_pending async for each in stream.consumers()}
    groups = [each.name for each in await static.list(session.js, name)]
    boundary = int(found.new.config.metadata.get(BOUNDARY, "0"))
    lines = [
        f"stream {new} has the subjects of {name} now, with {counted(partitions, 'partition')}",
        f"{name} ends at {boundary}; what reads {new} begins at {boundary + 1}, when {name} is handled",
        *(f"  consumer {each}: {count:,} left" for each, count in sorted(left.items())),
        *(f"  group {each}: make it anew on {new}" for each in groups),
        f"headrace stream rm {name}    when nobody needs it any more",
    ]
    document = {
        "stream": new,
        "was": name,
        "partitions": partitions,
        "boundary": boundary,
        "left": left,
        "groups": groups,
    }
    session.output.show(document, "\n".join(lines))
