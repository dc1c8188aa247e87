"""Creating, finding and listing the consumers of one stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final

from ...api.consumers import (
    ConsumerConfig,
    ConsumerInfo,
    ConsumerListResponse,
    ConsumerNamesResponse,
    CreateConsumerRequest,
)
from ...api.errors import Errors
from ...api.messages import SuccessResponse
from ...errors import JetStreamApiError
from ...subjects import check_pattern
from ..events import SettingsChanged
from .calls import Api, check_name
from .configuration import config_from, differences, merged
from .consumer import Consumer

_EXISTS: Final = Errors.CONSUMER_ALREADY_EXISTS.err_code


class Consumers:
    """The consumers of one stream, for ``Stream`` and for the context."""

    __slots__ = ("_api", "_stream")

    def __init__(self, api: Api, stream: str) -> None:
        self._api = api
        self._stream = check_name("stream", stream)

    async def create(
        self, config: ConsumerConfig | None, values: Mapping[str, object], action: str
    ) -> Consumer:
        """``action``: "create" or "update"."""
        info = await self.create_info(config, values, action)
        return Consumer(self._api, self._stream, info.name, info)

    async def create_or_update(
        self, config: ConsumerConfig | None, values: Mapping[str, object]
    ) -> Consumer:
        """Create, or change what is named if it exists with another configuration; and say what that has
        changed."""
        try:
            return await self.create(config, values, "create")
        except JetStreamApiError as error:
            if error.err_code != _EXISTS:
                raise
        asked = config_from(ConsumerConfig, config, values)
        consumer = await self.get(asked.name or asked.durable_name)
        assert consumer.cached_info is not None
        there = consumer.cached_info.config
        wanted = merged(there, config, values)
        if wanted != there:
            consumer = await self.create(wanted, {}, "update")
            assert consumer.cached_info is not None
            consumer.changes = differences(there, consumer.cached_info.config)
        if consumer.changes:
            of = f"consumer {consumer.name!r} of stream {self._stream!r}"
            self._api.session.hub.emit(SettingsChanged(of, consumer.changes))
        return consumer

    async def create_info(
        self, config: ConsumerConfig | None, values: Mapping[str, object], action: str
    ) -> ConsumerInfo:
        """As ``create``, and returns what the server says of it."""
        config = config_from(ConsumerConfig, config, values)
        name = config.name or config.durable_name
        tokens: tuple[str, ...] = ("CONSUMER", "CREATE", self._stream)
        if name:
            tokens += (check_name("consumer", name),)
            if config.filter_subject:
                check_pattern(config.filter_subject.encode())  # a part of the call's subject
                tokens += (config.filter_subject,)
        request = CreateConsumerRequest(stream_name=self._stream, config=config, action=action)
        # The second creation of one that has a name finds what it wants; without a name it makes another.
        return await self._api.call(ConsumerInfo, tokens, request, repeatable=bool(name))

    async def get(self, name: str) -> Consumer:
        consumer = Consumer(self._api, self._stream, check_name("consumer", name))
        await consumer.info()
        return consumer

    async def delete(self, name: str) -> None:
        tokens = ("CONSUMER", "DELETE", self._stream, check_name("consumer", name))
        await self._api.call(SuccessResponse, tokens)

    def infos(self) -> AsyncIterator[ConsumerInfo]:
        tokens = ("CONSUMER", "LIST", self._stream)
        return self._api.pages(ConsumerListResponse, tokens, lambda page: page.consumers)

    def names(self) -> AsyncIterator[str]:
        tokens = ("CONSUMER", "NAMES", self._stream)
        return self._api.pages(ConsumerNamesResponse, tokens, lambda page: page.consumers)
