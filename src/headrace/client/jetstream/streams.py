"""Creating, finding and listing the streams of one account."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final, Literal

from ...api.messages import SuccessResponse
from ...api.streams import (
    StreamConfig,
    StreamInfo,
    StreamListResponse,
    StreamNamesResponse,
)
from ...errors import HeadraceError, JetStreamApiError, StreamExistsError
from .calls import Api, check_name
from .configuration import config_from, differences, with_external_domains
from .stream import Stream

_STREAM_EXISTS: Final = 10058


class Streams:
    """The streams of one account, for the context, buckets and batches."""

    __slots__ = ("_api",)

    def __init__(self, api: Api) -> None:
        self._api = api

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
        """Create or update, from a configuration, from its fields, or from both."""
        complete = with_external_domains(config_from(StreamConfig, config, values or {}))
        tokens = ("STREAM", verb, check_name("stream", complete.name))
        # Of two creations, or updates, of the same stream the second finds what it wants.
        info = await self._api.call(StreamInfo, tokens, complete, repeatable=True)
        return Stream(self._api, complete.name, info)

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
        """Create, or update if it exists with another configuration."""
        try:
            return await self.put("CREATE", config, values)
        except JetStreamApiError as error:
            if error.err_code != _STREAM_EXISTS:
                raise
        return await self.put("UPDATE", config, values)

    async def delete(self, name: str) -> None:
        tokens = ("STREAM", "DELETE", check_name("stream", name))
        await self._api.call(SuccessResponse, tokens)

    def infos(self, *, subject: str = "") -> AsyncIterator[StreamInfo]:
        tokens = ("STREAM", "LIST")
        return self._api.pages(StreamListResponse, tokens, lambda page: page.streams, subject)

    def names(self, *, subject: str = "") -> AsyncIterator[str]:
        tokens = ("STREAM", "NAMES")
        return self._api.pages(StreamNamesResponse, tokens, lambda page: page.streams, subject)
