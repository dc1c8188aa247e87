"""Creating and updating consumers: the three actions, names, and the rules of work queues."""

from __future__ import annotations

from typing import Final

import msgspec

from .....api.base import Document, DocumentError
from .....api.consumers import ConsumerConfig, CreateConsumerRequest
from .....api.envelope import decode_create_consumer
from .....api.errors import Errors
from ..config.consumer import (
    check_consumer,
    check_consumer_name,
    check_consumer_update,
    check_pedantic,
    filters_of,
    with_consumer_defaults,
    with_ephemeral_default,
)
from ..config.priority import with_explicit_acks
from ..config.push import check_rate, with_flow_control
from ..config.ranges import check_ranges
from ..config.refused import Refused
from ..config.sizes import check_request_size, with_checked_texts
from ..consumer.consumer import Consumer
from ..context import Context
from ..stream.stream import Stream
from .consumer_info import consumer_info
from .consumer_rules import check_count, check_work_queue
from .dispatcher import Call
from .ports import Assets, stream_of

_ACTIONS: Final = ("", "create", "update")
_NAME_CHARS: Final = 8


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
