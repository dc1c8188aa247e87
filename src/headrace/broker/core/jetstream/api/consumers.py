"""The CONSUMER endpoints: create, update, info, delete, list, names, pause, reset, unpin, and pulls.

``ConsumerCreation`` has the three actions, the names, and the rules of work queues. ``consumer_info`` is
what clients are told about a consumer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from .....api.base import Document, DocumentError, decode
from .....api.consumers import (
    ConsumerConfig,
    ConsumerInfo,
    ConsumerListResponse,
    ConsumerNamesResponse,
    CreateConsumerRequest,
    OffsetRequest,
    PauseRequest,
    PauseResponse,
    PriorityGroupState,
    ResetRequest,
    SequenceInfo,
    UnpinRequest,
)
from .....api.envelope import decode_create_consumer
from .....api.errors import Errors
from .....api.messages import SuccessResponse
from .....api.streams import StreamConfig
from .....api.times import ZERO_TIME, format_time, parse_time
from .....limits import INFOS_PER_PAGE, NAMES_PER_PAGE
from .....pattern_tree import PatternTree
from ..config.consumer import (
    check_consumer,
    check_consumer_name,
    check_consumer_update,
    check_group_name,
    check_pedantic,
    check_rate,
    filters_of,
    with_consumer_defaults,
    with_ephemeral_default,
    with_explicit_acks,
    with_flow_control,
)
from ..config.options import JetStreamOptions, Refused
from ..config.sizes import check_ranges, check_request_size, with_checked_texts
from ..consumer.consumer import Consumer
from ..consumer.priority_policies import PinnedClient
from ..context import Context
from ..stream.stream import Stream
from .dispatcher import ApiAnswer, ApiDispatcher, Assets, Call, dynamic_metadata, page_of, stream_of

_ACTIONS: Final = ("", "create", "update")
_NAME_CHARS: Final = 8
_NO_PAGE: Final = {"total": 0, "offset": 0, "limit": 0, "consumers": []}
_NS: Final = 1_000_000_000


def consumer_info(consumer: Consumer, *, listed: bool = False) -> ConsumerInfo:
    """The answer to CONSUMER.INFO, and part of others; ``listed`` among others, a little less."""
    context = consumer.context
    state = consumer.state
    consumer.pulls.drop_abandoned()
    now_ns = context.clock.now_ns()
    paused = consumer.is_paused(now_ns)
    return ConsumerInfo(
        stream_name=consumer.stream.name,
        name=consumer.name,
        created=format_time(consumer.created_ns),
        config=_shown_config(consumer, listed=listed),
        delivered=SequenceInfo(
            consumer_seq=state.delivered_consumer,
            stream_seq=state.delivered_stream,
            last_active=_time(consumer.last_delivered_ns),
        ),
        ack_floor=SequenceInfo(
            consumer_seq=state.floor_consumer,
            stream_seq=state.floor_stream,
            last_active=_time(consumer.acks.last_ns),
        ),
        num_ack_pending=len(state.pending),
        num_redelivered=len(state.deliveries),
        num_waiting=consumer.queue.waiting,
        num_pending=consumer.num_pending(),
        push_bound=consumer.push is not None and consumer.push.active,
        paused=paused,
        pause_remaining=(consumer.pause.until_ns - now_ns) / _NS if paused else 0.0,
        ts=format_time(now_ns),
        priority_groups=_groups(consumer),
    )


def _time(at_ns: int) -> str | None:
    return format_time(at_ns) if at_ns else None


def _shown_config(consumer: Consumer, *, listed: bool) -> ConsumerConfig:
    config = consumer.config
    needs_level = config.pause_until is not None or config.priority_policy != "none"
    level = "4" if config.ack_policy == "flow_control" else "1" if needs_level else "0"
    dynamic = dynamic_metadata(consumer.context.options, level, listed=listed)
    return msgspec.structs.replace(config, metadata={**config.metadata, **dynamic})


def _groups(consumer: Consumer) -> tuple[PriorityGroupState, ...]:
    if consumer.config.priority_policy == "none":
        return ()
    group = consumer.config.priority_groups[0]
    policy = consumer.policy
    if isinstance(policy, PinnedClient) and policy.pin_id:
        pinned = format_time(policy.pinned_ns)
        return (PriorityGroupState(group=group, pinned_client_id=policy.pin_id, pinned_ts=pinned),)
    return (PriorityGroupState(group=group, pinned_ts=ZERO_TIME),)


def check_count(stream: StreamConfig, options: JetStreamOptions, count: int) -> None:
    """Refuse one more than ``count`` consumers of a stream, if that is too many."""
    limits = (stream.max_consumers, options.limits.max_consumers, options.max_consumers_per_stream)
    if any(0 < limit <= count for limit in limits):
        raise Refused(Errors.MAX_CONSUMERS)


def check_work_queue(
    stream: StreamConfig, config: ConsumerConfig, others: Iterable[ConsumerConfig]
) -> None:
    """On a work queue each message has one consumer, which acknowledges and starts at the front."""
    if stream.retention != "workqueue" or _copies(config):
        return
    if config.ack_policy not in ("explicit", "flow_control"):
        raise Refused(Errors.CONSUMER_WQ_REQUIRES_EXPLICIT_ACK)
    others = [other for other in others if not _copies(other)]
    filters = filters_of(config)
    if others and not filters:
        raise Refused(Errors.CONSUMER_WQ_MULTIPLE_UNFILTERED)
    ours = PatternTree(filter.encode() for filter in filters)
    for other in others:
        theirs: Sequence[str] = filters_of(other)
        if not theirs or ours.overlaps_any([filter.encode() for filter in theirs]):
            raise Refused(Errors.CONSUMER_WQ_NOT_UNIQUE)
    if config.deliver_policy != "all":
        raise Refused(Errors.CONSUMER_WQ_NOT_DELIVER_ALL)


def _copies(config: ConsumerConfig) -> bool:
    """Whether a consumer is of the kind other servers' mirrors and sources use: it does not count."""
    return config.direct or config.sourcing


class ConsumerCreation:
    """The endpoints CONSUMER.CREATE and CONSUMER.DURABLE.CREATE."""

    def __init__(self, context: Context, assets: Assets) -> None:
        self._context = context
        self._assets = assets

    def create(self, call: Call) -> Document:
        """``CONSUMER.CREATE.<stream>[.<name>[.<filter>]]``."""
        request = self._read(call)
        config = request.config
        if len(call.names) == 1:
            if config.durable_name:
                raise Refused(Errors.CONSUMER_EPHEMERAL_WITH_DURABLE_NAME)
            return self._apply(request, call, config.name)
        name = call.names[1]
        if config.durable_name and config.durable_name != name:
            raise Refused(Errors.CONSUMER_DURABLE_NAME_MISMATCH)
        if len(call.names) > 2:
            if config.filter_subjects:
                raise Refused(Errors.CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED)
            if config.filter_subject != ".".join(call.names[2:]):
                raise Refused(Errors.CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH)
        if config.name != name:  # the subject decides
            request = msgspec.structs.replace(
                request, config=msgspec.structs.replace(config, name=name)
            )
        return self._apply(request, call, name)

    def create_durable(self, call: Call) -> Document:
        """``CONSUMER.DURABLE.CREATE.<stream>.<durable>``, as older clients ask."""
        request = self._read(call)
        if not request.config.durable_name:
            raise Refused(Errors.CONSUMER_EPHEMERAL_WITH_DURABLE_IN_SUBJECT)
        if request.config.durable_name != call.names[1]:
            raise Refused(Errors.CONSUMER_DURABLE_NAME_MISMATCH)
        return self._apply(request, call, call.names[1])

    def _read(self, call: Call) -> CreateConsumerRequest:
        check_request_size(call.payload)
        request = check_ranges(decode_create_consumer(call.payload.strip() or b"{}"))
        with_checked_texts(request, call.payload)
        if request.action not in _ACTIONS:
            raise DocumentError(f'unknown consumer action: "{request.action}"')
        check_rate(request.config)
        if request.stream_name != call.names[0]:
            raise Refused(Errors.STREAM_NAME_MISMATCH)
        return request

    def _apply(self, request: CreateConsumerRequest, call: Call, name: str) -> Document:
        stream = stream_of(self._assets, call.names[0])
        options = self._context.options
        config = request.config
        if request.pedantic:
            check_pedantic(config, stream.config, options)
        config = with_explicit_acks(config, call.payload, pedantic=request.pedantic)
        config = with_consumer_defaults(config, stream.config, options)
        if not request.pedantic:
            config = with_flow_control(config)
        if config.durable_name and not config.name:
            config = msgspec.structs.replace(config, name=config.durable_name)
        if name:
            check_consumer_name(name)
        check_consumer(config, stream.config, options)
        existing = stream.consumers.get(name) if name else None
        if existing is not None:
            return self._existing(stream, existing, config, request.action)
        if request.action == "update":
            raise Refused(Errors.CONSUMER_DOES_NOT_EXIST)
        check_count(stream.config, options, len(stream.consumers))
        check_work_queue(stream.config, config, (c.config for c in stream.consumers.values()))
        name = name or self._new_name(stream)
        config = with_ephemeral_default(config)
        return consumer_info(self._assets.create_consumer(stream, name, config))

    def _existing(
        self, stream: Stream, consumer: Consumer, config: ConsumerConfig, action: str
    ) -> Document:
        """The consumer is there: it is the same, or it is updated, or that is refused."""
        # Only the pause API changes a pause.
        config = msgspec.structs.replace(config, pause_until=consumer.config.pause_until)
        same = config == consumer.config
        if action == "create":
            if not same:
                raise Refused(Errors.CONSUMER_ALREADY_EXISTS)
            return consumer_info(consumer)
        if not same:
            check_consumer_update(consumer.config, config)
            _check_listened(consumer, config)
            others = (c.config for c in stream.consumers.values() if c is not consumer)
            check_work_queue(stream.config, config, others)
            refiltered = filters_of(config) != filters_of(consumer.config)
            consumer.reconfigure(with_ephemeral_default(config))
            self._assets.journal_consumer(consumer)
            if refiltered:
                stream.retention.consumers_changed()
        return consumer_info(consumer)

    def _new_name(self, stream: Stream) -> str:
        while (name := self._context.new_name(_NAME_CHARS)) in stream.consumers:
            continue
        return name


def _check_listened(consumer: Consumer, config: ConsumerConfig) -> None:
    """Deliveries do not move away from under somebody who listens."""
    push = consumer.push
    if push is not None and push.active and config.deliver_subject.encode() != push.subject:
        raise Refused(Errors.CONSUMER_NAME_EXISTS)


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
