"""Whatever keeps a place in a stream, and what happens to the stream: each goes on exactly, or says how to.

Of each cell the right answer is written before it is run. ``""``: it goes on by itself. A text: it does not,
with these words, and goes on exactly when what they advise was done.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import peers
from headrace.errors import HeadraceError
from portions import EVERY, some

from .keepers import KEEPERS, SparkStream, numbers_in
from .world import HAPPENINGS, RefusedError, world_on

GOES_ON = ""
NO_CONSUMER = "consumer not found"
REMADE = "delete it and create it again to mirror the new one"
KEPT_NAME = "would lose their position: M"
GROUPS_NAME = "groups work on stream S and know it by its name: g"
BEGINS_AT = "what reads T begins at 11"
RESET = "onStreamReset=continue"
BY_PAGE = "headrace_done"
LAST_IN_BOTH = "give --after 6"
NONE_IN_BOTH = "give --after 0"

# restored, copied, moved, tail lost, older put back, made again, renamed, purged, repartitioned
TABLE = {
    "consumer": (
        GOES_ON,
        GOES_ON,
        GOES_ON,
        GOES_ON,
        GOES_ON,
        NO_CONSUMER,
        GOES_ON,
        GOES_ON,
        NO_CONSUMER,
    ),
    "mirror": (GOES_ON, None, GOES_ON, GOES_ON, REMADE, REMADE, KEPT_NAME, GOES_ON, BEGINS_AT),
    "source": (GOES_ON, None, GOES_ON, GOES_ON, GOES_ON, GOES_ON, KEPT_NAME, GOES_ON, BEGINS_AT),
    "group": (GOES_ON, None, GOES_ON, GOES_ON, GOES_ON, GOES_ON, GROUPS_NAME, GOES_ON, None),
    "reader": (GOES_ON, None, None, GOES_ON, GOES_ON, GOES_ON, None, GOES_ON, None),
    "feed": (GOES_ON,) * 9,
    "spark": (GOES_ON, GOES_ON, GOES_ON, RESET, RESET, RESET, GOES_ON, GOES_ON, GOES_ON),
    "done": (*(GOES_ON,) * 6, BY_PAGE, GOES_ON, BY_PAGE),
    "letters": (GOES_ON,) * 9,
    "copy": (
        *(GOES_ON, GOES_ON, GOES_ON),
        *(LAST_IN_BOTH, LAST_IN_BOTH, NONE_IN_BOTH, GOES_ON, GOES_ON, GOES_ON),
    ),
}
"""None: what there is no such thing of. A copy and a group stay with the stream that was copied (the page on
moves), an elastic group numbers subjects itself, and a reader ends with its connection and its stream."""

THEIRS = {
    *((each, "older put back") for each in ("mirror", "source", "group", "letters")),
    *((each, "made again") for each in ("mirror", "group")),
    *((each, "restored") for each in ("source", "letters")),
    ("letters", "copied"),
}
"""A copy of nats-server's goes on by its sequences, or takes all of it again, and says nothing; and of a
stream that it has put back that server knows no ids before it is started again."""
LONG = {
    *((keeper, "restored") for keeper in ("mirror", "source", "group")),
    *((keeper, "moved") for keeper in ("mirror", "source", "group")),
    ("source", "made again"),
}
"""nats-server looks for an origin that was away some twenty seconds later."""


def is_played(kind: str, keeper: str, happening: str) -> bool:
    goes_to = kind if happening != "moved" else next(each for each in peers.EITHER if each != kind)
    if goes_to == "nats-server" and (keeper, happening) in {*THEIRS, ("letters", "moved")}:
        return False
    return EVERY in os.environ or kind == "headrace" or (keeper, happening) not in LONG


CELLS = [
    pytest.param(kind, keeper, happening, answer, id=f"{keeper}-{happening}-{kind}")
    for keeper, answers in TABLE.items()
    for happening, answer in zip(HAPPENINGS, answers, strict=True)
    for kind in peers.EITHER
    if answer is not None and is_played(kind, keeper, happening)
]


def test_every_cell_has_an_answer() -> None:
    assert TABLE.keys() == KEEPERS.keys()
    assert all(len(answers) == len(HAPPENINGS) for answers in TABLE.values())


@pytest.mark.parametrize(("kind", "keeper", "happening", "answer"), some(CELLS, 7))
async def test_it_goes_on_exactly_or_says_how(
    kind: str, keeper: str, happening: str, answer: str, tmp_path: Path
) -> None:
    event = HAPPENINGS[happening]
    numbered = happening == "repartitioned"
    async with world_on(tmp_path, kind, numbered=numbered) as world, AsyncExitStack() as stack:
        kept = KEEPERS[keeper](world, stack)
        await kept.begin()
        await world.publish(1, 2, 3, 4, 5, 6)
        assert await kept.read(6) == [1, 2, 3, 4, 5, 6]
        await event.before(world)
        await world.publish(7, 8, 9, 10)
        assert await kept.read(10) == [7, 8, 9, 10]
        said = ""
        try:
            await event.then(world)
        except RefusedError as error:
            said = str(error)
            assert answer in said, said
            answer = GOES_ON  # nothing has happened
        await world.publish(11, 12, 13, 14, 15)
        if answer in (BEGINS_AT, BY_PAGE):
            assert answer == BY_PAGE or answer in world.said
            await kept.advised(happening, world.said)
        elif answer:
            with pytest.raises(RefusedError) as refused:
                await kept.read(15)
            assert answer in str(refused.value)
            await kept.advised(happening, str(refused.value))
        assert await kept.read(15) == [11, 12, 13, 14, 15]


BEGUN_AGAIN = "start the query again"
PLANNED = {
    "restored": GOES_ON,
    "tail lost": BEGUN_AGAIN,
    "older put back": BEGUN_AGAIN,
    "made again": BEGUN_AGAIN,
    "purged": "messages after 0 were removed while a task was reading them",
}


@pytest.mark.parametrize("kind", peers.EITHER)
@pytest.mark.parametrize("happening", PLANNED)
async def test_a_batch_that_was_planned_is_read_as_it_was_or_not_at_all(
    kind: str, happening: str, tmp_path: Path
) -> None:
    event, answer = HAPPENINGS[happening], PLANNED[happening]
    async with world_on(tmp_path, kind, numbered=False) as world, AsyncExitStack() as stack:
        batch = SparkStream(world, stack)
        await world.publish(1, 2, 3, 4, 5, 6)
        await event.before(world)
        await world.publish(7, 8, 9, 10)
        planned = await asyncio.to_thread(batch.plan)
        await event.then(world)
        await world.publish(11, 12, 13, 14, 15)
        if answer:
            with pytest.raises(HeadraceError, match=answer):
                await asyncio.to_thread(batch.read_planned, planned)
            again = SparkStream(world, stack)
            assert await again.read(15) == await numbers_in(world.js, "S")
        else:
            assert await asyncio.to_thread(batch.read_planned, planned) == [*range(1, 11)]
