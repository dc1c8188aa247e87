"""Whether messages can reach a member's group at all, looked at now and then, and told once if they cannot.

A member that gets nothing cannot know why: its stream may be gone, its subjects renamed, its transform
changed. A look costs the state of the stream, and of the work queue; more is asked only when a configuration
is another one than before. What one look finds the next has to find, too: in the midst of a change much looks
odd.
"""

from __future__ import annotations

import asyncio
import logging
import random as random_module
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...api.errors import Errors
from ...errors import ConnectionClosedError, HeadraceError, JetStreamApiError
from ..events import CopyPaused, GroupStuck
from ..lag import is_full
from ..reach import Trouble
from ..record.records import ElasticGroup
from ..server.consumers import stream_of
from ..trouble import troubles

if TYPE_CHECKING:
    from ...api.streams import StreamInfo
    from ...client import JetStream
    from ...client.events import Event
    from ..record.records import StaticGroup

FIRST_S: Final = 2.0
LOOK_S: Final = 6.0
CONFIRM_S: Final = 1.0
PAUSE_S: Final = 2.5
"""So long the server may not have looked at what it copies; a nats-server does each second."""

CHANGE_S: Final = 10.0
"""So long a change may make no step that nobody but its caller can make; each takes a few requests."""

LOOK_MAX_S: Final = 60.0  # where the server does not answer, or must not be asked
_NOT_FOUND: Final = Errors.STREAM_NOT_FOUND.err_code

_log = logging.getLogger("headrace.groups")


class Reachability:
    """The looks of one membership.

    Args:
        record: the group's record, as it is at the moment.
        label: group and member, for texts.
        emit: takes events.
        random: spreads the looks of many members.
    """

    def __init__(
        self,
        js: JetStream,
        record: Callable[[], StaticGroup | ElasticGroup],
        label: str,
        emit: Callable[[Event], None],
        random: random_module.Random,
    ) -> None:
        self._js = js
        self._record = record
        self._label = label
        self._emit = emit
        self._random = random
        self._seen: object = ()
        self._found: tuple[Trouble, ...] = ()
        self._suspected: set[str] = set()
        self._told: set[str] = set()
        self._pauses_since: float | None = None
        self._pause_told = False
        self._change_seen, self._change_since = 0, 0.0
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"outlook of {label}")

    async def end(self) -> None:
        """Stop looking."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        pause = FIRST_S
        while True:
            await asyncio.sleep(pause * (0.75 + self._random.random() / 2))
            try:
                found = await self._look()
            except ConnectionClosedError:
                return
            except HeadraceError:  # whoever works meets it, too, and says so
                pause = min(max(2 * pause, LOOK_S), LOOK_MAX_S)
                continue
            pausing = self._pauses_since is not None and not self._pause_told
            pause = CONFIRM_S if self._judge(found) or pausing else LOOK_S

    async def _look(self) -> tuple[Trouble, ...]:
        record = self._record()
        origin = await self._info(record.stream)
        seen: tuple[object, ...] = (record.revision, origin and origin.config)
        left_alone: tuple[Trouble, ...] = ()
        if stream_of(record) != record.stream:
            queue = await self._info(stream_of(record))
            seen = (*seen, queue and queue.config)
            is_changing = isinstance(record, ElasticGroup) and record.change is not None
            self._judge_copy(record.stream, None if is_changing else queue)
            left_alone = self._left_alone(record, queue)
        if seen != self._seen or self._found:
            self._found = tuple(
                each for each in await troubles(self._js, record) if each.is_certain
            )
            self._seen = seen
        return (*self._found, *left_alone)

    async def _info(self, name: str) -> StreamInfo | None:
        try:
            return (await self._js.stream(name)).cached_info
        except JetStreamApiError as error:
            if error.err_code != _NOT_FOUND:
                raise
            return None

    def _left_alone(
        self, record: StaticGroup | ElasticGroup, queue: StreamInfo | None
    ) -> tuple[Trouble, ...]:
        """A change whose next step is its caller's, who does not make it: killed, or without a link.

        While the work queue is drained it is the members who work, and however long that takes is right.
        """
        change = record.change if isinstance(record, ElasticGroup) else None
        messages = queue.state.messages if queue is not None else 0
        if change is None or (change.phase == "draining" and messages):
            self._change_seen = 0
            return ()
        now = asyncio.get_running_loop().time()
        if record.revision != self._change_seen:
            self._change_seen, self._change_since = record.revision, now
        if now - self._change_since < CHANGE_S:
            return ()
        command = f"headrace group elastic change {record.stream} {record.name}"
        return (
            Trouble(
                "change-left",
                f"its settings are being changed ({change.phase}), its work queue may take nothing "
                "meanwhile, and nobody goes on with the change",
                f"{command} completes it, --undo undoes it",
            ),
        )

    def _judge_copy(self, stream: str, queue: StreamInfo | None) -> None:
        """Tell, once, that two looks have found a copy that stands; one may have met the server at work."""
        source = queue.sources[0] if queue is not None and queue.sources else None
        # Below 0 it has not looked since it was started.
        if source is None or queue is None or 0 <= source.active <= PAUSE_S:
            self._pauses_since, self._pause_told = None, False
            return
        now = asyncio.get_running_loop().time()
        if self._pauses_since is None:
            self._pauses_since = now - max(source.active, 0.0)
        elif not self._pause_told:
            self._pause_told, full = True, is_full(queue)
            name, seconds = queue.config.name, now - self._pauses_since
            why = "has no room" if full else "goes on when the server has set the copy up again"
            _log.warning(
                "%s: nothing was copied from stream %r for %.0f s, and new messages wait: its work queue %r "
                "%s",
                *(self._label, stream, seconds, name, why),
            )
            self._emit(CopyPaused(self._label, stream, name, seconds, full))

    def _judge(self, found: tuple[Trouble, ...]) -> bool:
        """Tell of what was found twice, each once for as long as it lasts. Whether to look again soon."""
        kinds = {each.kind for each in found}
        for each in found:
            if each.kind in self._suspected and each.kind not in self._told:
                self._told.add(each.kind)
                _log.warning("%s stands still: %s (%s)", self._label, each.text, each.mend)
                self._emit(GroupStuck(self._label, each.kind, each.text, each.mend))
        self._told &= kinds
        self._suspected = kinds
        return bool(kinds - self._told)
