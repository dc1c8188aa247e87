"""Creating, finding and listing the streams of one account."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from ...api.messages import SuccessResponse
from ...api.streams import StreamConfig, StreamInfo, StreamListResponse, StreamNamesResponse
from ...api.times import parse_time
from ...errors import HeadraceError, JetStreamApiError, StreamExistsError, StreamLeftoversError
from ..events import SettingsChanged
from .calls import Api, check_name
from .configuration import config_from, differences, merged, with_external_domains
from .stored_message import if_found
from .stream import Stream


def leftovers_in(made: StreamInfo, waited_ns: int) -> StreamLeftoversError | None:
    """What to say of a stream if it was ``made`` within the time that its creation was waited for, and all
    its messages are older than it is.

    A mirror keeps the times of its origin, and a restored stream those it had: the one is not judged, and the
    other was there before it was asked for.
    """
    state, created = made.state, parse_time(made.created)
    if not state.messages or made.config.mirror is not None or not created or not made.ts:
        return None
    if parse_time(made.ts) - created > waited_ns or parse_time(state.last_ts) >= created:
        return None
    return StreamLeftoversError(made.config.name, state.messages, state.first_seq, state.last_seq)


_DELETED_MAX: Final = (
    100_000  # so many sequences of deleted messages are asked for, to count exactly
)


@dataclass(frozen=True)
class Loss:
    """What a change removes.

    Attributes:
        messages: how many messages, as far as that can be told before.
        of: how many there are.
        is_exact: whether it is that many, and not about that many.
        unneeded: whether messages go as well that no consumer needs; they are not counted.
        refuses: whether the stream is fuller than it may be then, keeps all, and refuses new messages.
    """

    messages: int
    of: int
    is_exact: bool = True
    unneeded: bool = False
    refuses: bool = False

    @property
    def text(self) -> str:
        """Words to go behind "change stream A so"; nothing if nothing is lost."""
        about = "" if self.is_exact else "about "
        counted = f"{about}{self.messages:,} of {self.of:,} messages" if self.messages else ""
        unneeded = "what no consumer needs" if self.unneeded else ""
        what = ", and ".join(filter(None, (counted, unneeded)))
        parts = [f"which removes {what}"] if what else []
        if self.refuses:
            parts.append("which refuses new messages until there is room")
        return "".join(f", {part}" for part in parts)

    @property
    def document(self) -> Mapping[str, Any]:
        """The removal as a document, for programs."""
        return {
            "removes": {
                "messages": self.messages,
                "of": self.of,
                "exact": self.is_exact and not self.unneeded,
            },
            "refuses_new": self.refuses,
        }


async def loss_of(stream: Stream, info: StreamInfo, after: StreamConfig) -> Loss:
    """What changing a stream from what ``info`` says to ``after`` removes."""
    before, state = info.config, info.state
    trimmed, is_exact, is_over = _trimmed(info, after)
    if after.discard == "new" or after.sealed:
        trimmed, is_exact = 0, True
    if after.max_age > 0 and not after.sealed and not 0 < before.max_age <= after.max_age:
        aged, all_counted = await _aged(stream, info, after.max_age)
        if aged > trimmed:
            trimmed, is_exact = aged, all_counted
    thinned = 0
    least = after.max_msgs_per_subject
    if least > 0 and not 0 < before.max_msgs_per_subject <= least:
        counts = (await stream.info(subjects=">")).state.subjects
        thinned = sum(max(0, count - least) for count in counts.values())
    return Loss(
        max(trimmed, thinned),
        state.messages,
        is_exact and not (trimmed and thinned),
        unneeded=before.retention == "limits" and after.retention == "interest",
        refuses=is_over and after.discard == "new",
    )


def _trimmed(info: StreamInfo, after: StreamConfig) -> tuple[int, bool, bool]:
    """How many of the oldest are too many, whether that is exact, and whether any limit is exceeded."""
    state, number = info.state, 0
    if after.max_msgs > 0:
        number = max(0, state.messages - after.max_msgs)
    by_number = number
    excess = state.bytes - after.max_bytes if after.max_bytes > 0 else 0
    if excess > 0:  # the oldest may be smaller or larger than others
        number = max(number, -(-excess * state.messages // max(1, state.bytes)))
    return number, excess <= 0 or number == by_number, number > 0


async def _aged(stream: Stream, info: StreamInfo, max_age: float) -> tuple[int, bool]:
    """How many messages are older than that, and whether none of these was deleted already, or all known."""
    state = info.state
    if not state.messages:
        return 0, True
    since = datetime.fromtimestamp(time.time() - max_age, UTC)
    young = await if_found(stream.get_next_message(">", start_time=since))
    if young is None:
        return state.messages, True
    gone = young.sequence - state.first_seq
    if gone <= 0:
        return 0, True
    if not state.num_deleted:
        return gone, True
    if state.num_deleted > _DELETED_MAX:
        return min(gone, state.messages), False
    deleted = (await stream.info(deleted=True)).state.deleted
    return gone - sum(each < young.sequence for each in deleted), True


LEFTOVER_WAITS_S: Final = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
_STREAM_EXISTS: Final = 10058


class Streams:
    """The streams of one account, for the context, buckets and batches.

    Attributes:
        restored: names of those that were restored here and not asked for since; their messages are older
            than they are.
    """

    __slots__ = ("_api", "restored")

    def __init__(self, api: Api) -> None:
        self._api = api
        self.restored: set[str] = set()

    async def get(self, name: str) -> Stream:
        stream = Stream(self._api, check_name("stream", name))
        await stream.info()
        return stream

    async def info(self, name: str) -> StreamInfo:
        return await Stream(self._api, check_name("stream", name)).info()

    async def put(
        self,
        verb: Literal["CREATE", "UPDATE"],
        config: StreamConfig | None,
        values: Mapping[str, object] | None = None,
    ) -> Stream:
        """Create or update, from a configuration, from its fields, or from both.

        What a deleted stream has left in a new one is an event, with a StreamLeftoversError.
        """
        asked = config_from(StreamConfig, config, values or {})
        info, left = await self._put(verb, asked)
        if verb == "CREATE":
            if left is not None and asked.name not in self.restored:
                self._api.session.report(left)
            self.restored.discard(asked.name)  # the next one of this name is another
        return Stream(self._api, asked.name, info)

    async def _put(
        self, verb: str, config: StreamConfig
    ) -> tuple[StreamInfo, StreamLeftoversError | None]:
        tokens = ("STREAM", verb, check_name("stream", config.name))
        began = self._api.session.loop.time()
        # Of two creations, or updates, of the same stream the second finds what it wants.
        complete = with_external_domains(config)
        info = await self._api.call(StreamInfo, tokens, complete, repeatable=True)
        waited_ns = int((self._api.session.loop.time() - began) * 1e9)
        return info, leftovers_in(info, waited_ns)

    async def create_empty(self, config: StreamConfig) -> None:
        """Create, and where a deleted stream has left messages in it, delete it and create it again, until it
        has none: for a stream that is not there yet, and that nobody else publishes to. Raises
        JetStreamApiError, and StreamLeftoversError where they come back for some seconds: there is no such
        stream then."""
        left: StreamLeftoversError | None = None
        for wait in LEFTOVER_WAITS_S:
            await asyncio.sleep(wait)  # the server does not say when it has removed its files
            made, left = await self._put("CREATE", config)
            if left is None:
                return
            # At once: who is interrupted while it waits leaves no such stream.
            if (await self.info(config.name)).created == made.created:
                await self.delete(config.name)
        assert left is not None
        raise left

    async def create(
        self, config: StreamConfig | None, values: Mapping[str, object] | None = None
    ) -> Stream:
        """Create. Raises StreamExistsError, which names the settings that differ."""
        try:
            return await self.put("CREATE", config, values)
        except JetStreamApiError as error:
            if error.err_code != _STREAM_EXISTS:
                raise
            asked = config_from(StreamConfig, config, values or {})
            try:
                found = differences((await self.info(asked.name)).config, asked)
            except (HeadraceError, TimeoutError):  # what the server has said matters more
                found = {}
            raise StreamExistsError(error.code, error.err_code, error.description, found) from error

    async def put_either(
        self, config: StreamConfig | None, values: Mapping[str, object] | None = None
    ) -> Stream:
        """Create, or change what is named if it exists with another configuration."""
        named = values or {}
        try:
            return await self.put("CREATE", config, named)
        except JetStreamApiError as error:
            if error.err_code != _STREAM_EXISTS:
                raise
        there = await self.info(config_from(StreamConfig, config, named).name)
        return self.told(await self.change(there, merged(there.config, config, named)))

    async def change(self, there: StreamInfo, wanted: StreamConfig) -> Stream:
        """Update, unless there is no difference; ``changes`` of the result are what that has changed."""
        if not differences(there.config, wanted):
            return Stream(self._api, wanted.name, there)
        stream = await self.put("UPDATE", wanted)
        if stream.cached_info is not None:
            stream.changes = differences(there.config, stream.cached_info.config)
        return stream

    def told(self, stream: Stream) -> Stream:
        """``stream``, once an event has told what was changed of it."""
        if stream.changes:
            event = SettingsChanged(f"stream {stream.name!r}", stream.changes)
            self._api.session.hub.emit(event)
        return stream

    async def delete(self, name: str) -> None:
        tokens = ("STREAM", "DELETE", check_name("stream", name))
        await self._api.call(SuccessResponse, tokens)

    def infos(self, *, subject: str = "") -> AsyncIterator[StreamInfo]:
        tokens = ("STREAM", "LIST")
        return self._api.pages(StreamListResponse, tokens, lambda page: page.streams, subject)

    def names(self, *, subject: str = "") -> AsyncIterator[str]:
        tokens = ("STREAM", "NAMES")
        return self._api.pages(StreamNamesResponse, tokens, lambda page: page.streams, subject)
