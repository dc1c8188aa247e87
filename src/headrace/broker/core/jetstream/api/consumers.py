"""The CONSUMER endpoints besides creation: info, delete, list, names, pause, reset, unpin, and pulls."""

from __future__ import annotations

from typing import Final

import msgspec

from .....api.base import Document, DocumentError, decode
from .....api.consumers import (
    ConsumerListResponse,
    ConsumerNamesResponse,
    OffsetRequest,
    PauseRequest,
    PauseResponse,
    ResetRequest,
    UnpinRequest,
)
from .....api.errors import Errors
from .....api.messages import SuccessResponse
from .....api.times import ZERO_TIME, format_time, parse_time
from .....limits import INFOS_PER_PAGE, NAMES_PER_PAGE
from ...ports.bus import Origin
from ..config.priority import check_group_name
from ..config.ranges import check_ranges
from ..config.refused import Refused
from ..config.sizes import check_request_size
from ..consumer.consumer import Consumer
from ..context import Context
from .consumer_create import ConsumerCreation
from .consumer_info import consumer_info
from .dispatcher import ApiAnswer, ApiDispatcher, Call
from .ports import Assets, page_of, stream_of

_NO_PAGE: Final = {"total": 0, "offset": 0, "limit": 0, "consumers": []}
_NEXT_TOKENS: Final = 7
_NS: Final = 1_000_000_000


class ConsumersApi:
    """Endpoints over an account's streams and their consumers."""

    def __init__(self, context: Context, assets: Assets, api: ApiDispatcher) -> None:
        self._context = context
        self._assets = assets
        creation = ConsumerCreation(context, assets)
        created = "consumer_create_response"
        api.add("CONSUMER.CREATE", created, creation.create, names=(1, 4096), changes=True)
        api.add(
            "CONSUMER.DURABLE.CREATE", created, creation.create_durable, names=(2, 2), changes=True
        )
        api.add("CONSUMER.INFO", "consumer_info_response", self.info, names=(2, 2))
        api.add(
            "CONSUMER.DELETE", "consumer_delete_response", self.delete, names=(2, 2), changes=True
        )
        api.add("CONSUMER.NAMES", "consumer_names_response", self.names, blank=_NO_PAGE)
        api.add("CONSUMER.LIST", "consumer_list_response", self.list_consumers, blank=_NO_PAGE)
        kind, blank = "consumer_pause_response", {"paused": False, "pause_until": ZERO_TIME}
        api.add("CONSUMER.PAUSE", kind, self.pause, names=(2, 2), changes=True, blank=blank)
        kind, blank = "consumer_reset_response", {"reset_seq": 0}
        api.add("CONSUMER.RESET", kind, self.reset, names=(2, 2), changes=True, blank=blank)
        api.add("CONSUMER.UNPIN", "consumer_unpin_response", self.unpin, names=(2, 2))
        api.add_raw("CONSUMER.MSG.NEXT", self.next)

    def next(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        """Take a pull request; False when there is no such consumer."""
        tokens = subject.decode(errors="replace").split(".")
        if len(tokens) != _NEXT_TOKENS:
            return True
        stream = self._assets.streams.get(tokens[5])
        consumer = stream.consumers.get(tokens[6]) if stream is not None else None
        if consumer is None:
            return False
        if reply:
            consumer.pulls.receive(reply, headers, payload, origin)
        return True

    def info(self, call: Call) -> Document:
        call.expect_empty()
        return consumer_info(self._consumer(call))

    def delete(self, call: Call) -> Document:
        call.expect_empty()
        self._assets.delete_consumer(self._consumer(call))
        return SuccessResponse()

    def names(self, call: Call) -> Document:
        names = sorted(stream_of(self._assets, call.names[0]).consumers)
        page, place = page_of(names, call.read(OffsetRequest).offset, NAMES_PER_PAGE)
        return ConsumerNamesResponse(**place, consumers=tuple(page))

    def list_consumers(self, call: Call) -> Document:
        found = sorted(stream_of(self._assets, call.names[0]).consumers.items())
        page, place = page_of(found, call.read(OffsetRequest).offset, INFOS_PER_PAGE)
        infos = tuple(consumer_info(consumer, listed=True) for _, consumer in page)
        return ConsumerListResponse(**place, consumers=infos)

    def pause(self, call: Call) -> Document:
        text = call.read(PauseRequest).pause_until or ""
        until_ns = parse_time(text)
        consumer = self._consumer(call)
        now_ns = self._context.clock.now_ns()
        pauses = until_ns > now_ns
        until = format_time(until_ns) if until_ns else None
        consumer.reconfigure(msgspec.structs.replace(consumer.config, pause_until=until))
        self._assets.journal_consumer(consumer)
        self._context.advisories.paused(consumer, until_ns)
        return PauseResponse(
            paused=pauses,
            pause_until=until or ZERO_TIME,
            pause_remaining=(until_ns - now_ns) / _NS if pauses else 0.0,
        )

    def reset(self, call: Call) -> ApiAnswer | None:
        body = call.payload.strip()
        check_request_size(body)
        wanted = check_ranges(decode(body, ResetRequest)).seq if body else 0
        if wanted < 0:
            raise DocumentError("json: cannot unmarshal a negative number into field seq")
        try:
            consumer = self._consumer(call)
        except Refused:
            return None  # silence, as from the public server
        target = wanted or consumer.state.floor_stream + 1
        if wanted:
            _check_reset(consumer, wanted)
        self._assets.restart_consumer(consumer, target)
        consumer.stream.retention.consumers_changed()  # what was passed over is not waited for
        return ApiAnswer(consumer_info(consumer), {"reset_seq": target})

    def unpin(self, call: Call) -> ApiAnswer:
        if not call.payload.strip():
            raise DocumentError("unexpected end of JSON input")
        check_request_size(call.payload)
        group = decode(call.payload, UnpinRequest).group
        if not group:
            raise DocumentError("consumer group not specified")
        check_group_name(group)
        consumer = self._consumer(call)
        if group not in consumer.config.priority_groups:
            raise Refused(Errors.CONSUMER_INVALID_PRIORITY_GROUP)
        if consumer.pinning is not None:
            consumer.pinning.unpin("admin")
        else:  # as the public server tells it
            self._context.advisories.unpinned(consumer, "admin", None)
        return ApiAnswer(None, {})

    def _consumer(self, call: Call) -> Consumer:
        consumer: Consumer | None = stream_of(self._assets, call.names[0]).consumers.get(
            call.names[1]
        )
        if consumer is None:
            raise Refused(Errors.CONSUMER_NOT_FOUND)
        return consumer


def _check_reset(consumer: Consumer, sequence: int) -> None:
    config = consumer.config
    if config.deliver_policy == "all":
        return
    if config.deliver_policy == "by_start_sequence":
        if sequence < config.opt_start_seq:
            raise Refused(Errors.CONSUMER_INVALID_RESET, err="below start seq")
        return
    if config.deliver_policy == "by_start_time":
        start = consumer.stream.store.sequence_at(parse_time(config.opt_start_time or ""))
        if sequence < start:
            raise Refused(Errors.CONSUMER_INVALID_RESET, err="below start time")
        return
    raise Refused(Errors.CONSUMER_INVALID_RESET, err="not allowed")
