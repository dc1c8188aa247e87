"""Creating, finding and listing the streams of one account."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Final, Literal

from ...api.messages import SuccessResponse
from ...api.streams import (
    StreamConfig,
    StreamInfo,
    StreamListResponse,
    StreamNamesResponse,
)
from ...errors import HeadraceError, JetStreamApiError, StreamExistsError, StreamLeftoversError
from ..events import SettingsChanged
from .calls import Api, check_name
from .configuration import config_from, differences, merged, with_external_domains
from .leftovers import leftovers_in
from .stream import Stream

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
