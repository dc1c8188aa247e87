"""The STREAM endpoints: create, update, info, delete, list, names, purge; and the account's own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain, islice
from typing import Final

import msgspec

from .....api.base import Document
from .....api.errors import Errors
from .....api.messages import AccountInfo, AccountLimits, AccountTier, ApiStats, SuccessResponse
from .....api.streams import (
    LostMessages,
    PurgeRequest,
    PurgeResponse,
    StreamConfig,
    StreamInfo,
    StreamInfoRequest,
    StreamListResponse,
    StreamNamesRequest,
    StreamStateInfo,
)
from .....api.times import format_time
from .....limits import (
    INFOS_PER_PAGE,
    LISTED_PARTS_MAX,
    LOST_LISTED_MAX,
    NAMES_PER_PAGE,
    SUBJECTS_PER_PAGE,
)
from .....subjects import SubjectFilter, is_valid_pattern, overlaps
from ...options import JetStreamLimits
from ...ports import Losses
from ..config.options import JetStreamOptions, Refused, invalid
from ..config.sources import check_copies, check_copies_update, check_counts
from ..config.stream import (
    check_pedantic,
    check_republish,
    check_stream,
    check_stream_name,
    check_stream_update,
    compile_transform,
    required_level,
    with_stream_defaults,
)
from ..context import Context
from ..stream.stream import Stream
from .dispatcher import (
    ApiAnswer,
    ApiDispatcher,
    Assets,
    Call,
    Usage,
    dynamic_metadata,
    page_of,
    stream_of,
)

_PARTS_OF_SOURCE: Final = 10  # as long to show as so many subjects
_NO_PAGE: Final = {"total": 0, "offset": 0, "limit": 0}
_NO_NAMES: Final = {**_NO_PAGE, "streams": None}
_NO_STREAMS: Final = {**_NO_PAGE, "streams": []}


_OURS: Final = "R1"  # the tier of every stream here: there is one node
_OF_TIERS: Final = AccountLimits(
    max_memory=0,
    max_storage=0,
    max_streams=0,
    max_consumers=0,
    max_ack_pending=0,
    memory_max_stream_bytes=0,
    storage_max_stream_bytes=0,
)
"""The limits of an account whose tiers have some."""


def account_info(
    options: JetStreamOptions, usage: Usage, streams: int, api: ApiStats
) -> AccountInfo:
    """The answer to ``$JS.API.INFO``."""
    used = AccountTier(
        memory=usage.memory_bytes,
        storage=usage.storage_bytes,
        reserved_memory=usage.reserved_memory_bytes,
        reserved_storage=usage.reserved_storage_bytes,
        streams=streams,
        consumers=usage.consumers,
        limits=_limits(options.limits),
    )
    tiers = {
        name: used if name == _OURS else AccountTier(limits=_limits(limits))
        for name, limits in options.tiers
    }
    of_all = msgspec.structs.asdict(used)
    if tiers:
        of_all["limits"] = _OF_TIERS
    return AccountInfo(**of_all, domain=options.domain, api=api, tiers=tiers)


def _limits(limits: JetStreamLimits) -> AccountLimits:
    return AccountLimits(
        max_memory=limits.max_memory,
        max_storage=limits.max_storage,
        max_streams=limits.max_streams,
        max_consumers=limits.max_consumers,
        max_ack_pending=limits.max_ack_pending,
        memory_max_stream_bytes=limits.max_stream_memory,
        storage_max_stream_bytes=limits.max_stream_storage,
        max_bytes_required=limits.max_bytes_required,
    )


def stream_info(
    stream: Stream, context: Context, *, did_create: bool = False, listed: bool = False
) -> StreamInfo:
    """What clients are told about a stream; ``listed`` among others, a little less."""
    state = stream.store.state
    level = str(required_level(stream.config))
    metadata = {**stream.config.metadata, **dynamic_metadata(context.options, level, listed=listed)}
    config = msgspec.structs.replace(stream.config, metadata=metadata)
    positions = stream.copy_target.positions
    copies = positions.infos(fresh=did_create) if positions is not None else ()
    lost = stream.store.lost
    return StreamInfo(
        config=config,
        created=format_time(stream.created_ns),
        state=StreamStateInfo(
            messages=state.messages,
            bytes=state.bytes,
            first_seq=state.first_seq,
            first_ts=format_time(state.first_ns),
            last_seq=state.last_seq,
            last_ts=format_time(state.last_ns),
            num_subjects=state.num_subjects,
            num_deleted=state.num_deleted,
            lost=_lost_messages(lost) if lost.ranges else None,
            consumer_count=len(stream.consumers),
        ),
        mirror=copies[0] if stream.config.mirror is not None and copies else None,
        sources=copies if stream.config.mirror is None else (),
        domain="" if did_create else context.options.domain,  # as nats-server leaves it out there
        ts=format_time(context.clock.now_ns()),
        did_create=did_create,
    )


def _lost_messages(lost: Losses) -> LostMessages:
    """The first of the messages that damage has taken, one by one as nats-server lists them."""
    each = chain.from_iterable(range(low, high + 1) for low, high in lost.ranges)
    return LostMessages(msgs=tuple(islice(each, LOST_LISTED_MAX)), bytes=lost.nbytes)


def _as_many_as_are_quick(page: Sequence[Stream]) -> int:
    """How many of these are shown in one turn of the loop: one with a thousand sources takes some 10 ms."""
    left = LISTED_PARTS_MAX
    for number, stream in enumerate(page):
        config = stream.config
        left -= len(config.subjects) + _PARTS_OF_SOURCE * len(config.sources)
        if left < 0:
            return max(number, 1)
    return len(page)


class StreamsApi:
    """Endpoints over an account's streams."""

    def __init__(self, context: Context, assets: Assets, api: ApiDispatcher) -> None:
        self._context = context
        self._assets = assets
        self._api = api
        api.add("INFO", "account_info_response", self.account, names=(0, 0))
        api.add("STREAM.CREATE", "stream_create_response", self.create, changes=True, paced=True)
        api.add("STREAM.UPDATE", "stream_update_response", self.update, changes=True)
        api.add("STREAM.INFO", "stream_info_response", self.info, blank=_NO_PAGE)
        api.add("STREAM.DELETE", "stream_delete_response", self.delete, changes=True, paced=True)
        api.add(
            "STREAM.PURGE", "stream_purge_response", self.purge, changes=True, blank={"purged": 0}
        )
        api.add("STREAM.NAMES", "stream_names_response", self.names, names=(0, 0), blank=_NO_NAMES)
        api.add(
            "STREAM.LIST",
            "stream_list_response",
            self.list_streams,
            names=(0, 0),
            blank=_NO_STREAMS,
        )

    def account(self, call: Call) -> Document:
        return self.account_info()

    def account_info(self) -> AccountInfo:
        """What the account uses, and may."""
        options = self._context.options
        api = ApiStats(level=options.api_level, total=self._api.total, errors=self._api.errors)
        return account_info(options, self._assets.usage(), len(self._assets.streams), api)

    def create(self, call: Call) -> Document:
        config = self._read_config(call)
        if config.sealed:
            raise invalid("stream configuration for create can not be sealed")
        if config.mirror_direct and config.mirror is None:
            raise invalid("stream has no mirror but does have mirror direct")
        existing = self._assets.streams.get(config.name)
        if existing is not None:
            if existing.config != config:
                raise Refused(Errors.STREAM_NAME_EXISTS)
            return stream_info(existing, self._context, did_create=True)
        self.check_overlap(config)
        self.check_room(config)
        stream = self._assets.create_stream(config)
        return stream_info(stream, self._context, did_create=True)

    def update(self, call: Call) -> Document | None:
        config = self._read_config(call)
        if config.name in self._assets.lost.reasons:
            return self._adopt(config)
        stream = stream_of(self._assets, call.names[0])
        check_stream_update(stream.config, config)
        check_copies_update(stream.config, config)
        check_consumer_limits(stream, config)
        self._context.quota.check_stream(config, stream.config)
        self.check_overlap(config)
        if config.sealed:
            config = msgspec.structs.replace(
                config,
                max_age=0.0,
                discard="new",
                deny_delete=True,
                deny_purge=True,
                allow_rollup_hdrs=False,
            )
        self._assets.update_stream(stream, config)

        def answer(error: Exception | None) -> None:
            if error is not None:
                self._api.fail(call, error)
            elif stream.is_closed:
                self._api.refuse(call, Refused(Errors.STREAM_NOT_FOUND))
            else:
                self._api.complete(call, stream_info(stream, self._context))

        stream.listening.when_settled(partial(stream.removing.when_within, answer))
        return None  # the answer comes when the limits are met

    def _adopt(self, config: StreamConfig) -> Document:
        """The messages are there, what they are to be used for is not: this says it."""
        if config.storage != "file":
            raise invalid("the lost stream is one on disk")
        self.check_overlap(config)
        self._context.quota.check_stream(config)
        return stream_info(self._assets.adopt_stream(config), self._context)

    def info(self, call: Call) -> ApiAnswer:
        request = call.read(StreamInfoRequest)
        stream = stream_of(self._assets, call.names[0])
        copies = stream.copy_target.positions is not None
        if copies and stream.store.last_seq > stream.store.durable_seq:
            call.wait = True  # nobody is told otherwise when a copy is on disk
        info = stream_info(stream, self._context)
        page = dict(_NO_PAGE)
        if request.subjects_filter:
            subjects, total = self._subjects(stream, request)
            if total:
                page = {"total": total, "offset": request.offset, "limit": SUBJECTS_PER_PAGE}
            state = msgspec.structs.replace(info.state, subjects=subjects)
            info = msgspec.structs.replace(info, state=state)
        if request.deleted_details:
            state = msgspec.structs.replace(info.state, deleted=tuple(stream.store.deleted()))
            info = msgspec.structs.replace(info, state=state)
        return ApiAnswer(info, page)

    def delete(self, call: Call) -> Document:
        call.expect_empty()
        if call.names[0] in self._assets.lost.reasons:
            self._assets.drop_lost(call.names[0])
        else:
            self._assets.delete_stream(stream_of(self._assets, call.names[0]))
        return SuccessResponse()

    def purge(self, call: Call) -> None:
        request = call.read(PurgeRequest)
        if min(request.seq, request.keep) < 0:
            raise Refused(Errors.INVALID_JSON, err="json: seq and keep can not be negative")
        if request.seq and request.keep:
            raise Refused(Errors.BAD_REQUEST)
        stream = stream_of(self._assets, call.names[0])
        stream.check_not_sealed()
        if stream.config.deny_purge:
            raise Refused(Errors.STREAM_PURGE_FAILED, err="stream purge not permitted")
        scope = _filter(request.filter)
        removal = stream.store.purging(scope, request.seq, request.keep)

        def answer(error: Exception | None) -> None:
            if error is not None:
                self._api.fail(call, error)
                return
            if scope is None:
                stream.removing.begin_at(request.seq)
            stream.retention.consumers_changed()
            self._api.complete(call, PurgeResponse(success=True, purged=removal.removed))

        stream.removing.carry_out(removal, answer)

    def names(self, call: Call) -> ApiAnswer:
        request = call.read(StreamNamesRequest)
        page, place = page_of(self._matching(request.subject), request.offset, NAMES_PER_PAGE)
        names = [stream.name for stream in page]
        return ApiAnswer(
            None, {**place, "streams": names or None}
        )  # null, as the public server says

    def list_streams(self, call: Call) -> Document:
        request = call.read(StreamNamesRequest)
        page, place = page_of(self._matching(request.subject), request.offset, INFOS_PER_PAGE)
        shown = _as_many_as_are_quick(page)
        if shown < len(page):
            page, place = page[:shown], {**place, "limit": shown}
        infos = tuple(stream_info(stream, self._context, listed=True) for stream in page)
        return StreamListResponse(**place, streams=infos)

    def _read_config(self, call: Call) -> StreamConfig:
        config = call.read(StreamConfig, check_counts)
        if config.name != call.names[0]:
            raise Refused(Errors.STREAM_NAME_MISMATCH)
        return self.checked(config)

    def checked(self, config: StreamConfig) -> StreamConfig:
        """The configuration with its defaults, if a stream can have it. Raises Refused."""
        check_stream_name(config.name)
        if config.pedantic:
            check_pedantic(config, self._context.options)
        config = with_stream_defaults(config, self._context.options)
        check_stream(config, self._context.options)
        compile_transform(config, self._context.random)
        check_republish(config, self._context.random)
        return check_copies(config, self._assets.streams, self._context.random)

    def check_room(self, config: StreamConfig) -> None:
        """Refuse one more stream where there may be no more, or none of its size."""
        options = self._context.options
        if not options.admits_streams:
            raise Refused(Errors.NO_LIMITS)
        for limit in (options.max_streams, options.limits.max_streams):
            if 0 <= limit <= len(self._assets.streams):
                raise Refused(Errors.MAX_STREAMS)
        self._context.quota.check_stream(config)

    def check_overlap(self, config: StreamConfig) -> None:
        """Refuse subjects that another stream has."""
        patterns = [subject.encode() for subject in config.subjects]
        if self._context.taken.is_taken(patterns, config.name):
            raise Refused(Errors.STREAM_SUBJECT_OVERLAP)

    def _matching(self, subject: str) -> list[Stream]:
        streams = [stream for _, stream in sorted(self._assets.streams.items())]
        if not subject:
            return streams
        pattern = subject.encode()
        return [
            stream
            for stream in streams
            if any(overlaps(own.encode(), pattern) for own in stream.config.subjects)
        ]

    def _subjects(self, stream: Stream, request: StreamInfoRequest) -> tuple[dict[str, int], int]:
        scope = _filter(request.subjects_filter)
        counts = stream.store.subject_counts(scope)
        offset = max(request.offset, 0)
        if offset or len(counts) > SUBJECTS_PER_PAGE:
            counts.sort()
        page = counts[offset : offset + SUBJECTS_PER_PAGE]
        return {subject.decode(errors="replace"): count for subject, count in page}, len(counts)


def check_consumer_limits(stream: Stream, new: StreamConfig) -> None:
    """Refuse new limits that a consumer there is already exceeds."""
    old, limits = stream.config.consumer_limits, new.consumer_limits
    if old == limits:
        return
    exceeding = [
        name
        for name, consumer in sorted(stream.consumers.items())
        if 0 < limits.inactive_threshold < consumer.config.inactive_threshold
        or 0 < limits.max_ack_pending < consumer.config.max_ack_pending
    ]
    if exceeding:
        raise Refused(
            Errors.STREAM_UPDATE, err=f"change to limits violates consumers: {', '.join(exceeding)}"
        )


def _filter(pattern: str) -> SubjectFilter | None:
    """A filter for a pattern of a request; nothing and ``>`` mean every subject."""
    if pattern in ("", ">"):
        return None
    if not is_valid_pattern(pattern.encode()):
        raise Refused(Errors.BAD_REQUEST)
    return SubjectFilter([pattern.encode()])
