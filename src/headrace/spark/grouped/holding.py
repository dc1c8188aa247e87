"""How a query keeps other members away from its partitions, lets them have what is theirs, and gives back.

It holds a partition by a consumer that no member would make: of the name that the member's own would have,
but paused for good and marked. Servers refuse another consumer for the same messages of a work queue; members
of Headrace leave a marked one alone and wait; whoever would read from it gets nothing.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from msgspec import structs

from ...api import base
from ...api.consumers import ConsumerConfig, ConsumerInfo, PauseRequest, PauseResponse
from ...api.envelope import decode_response
from ...api.errors import Errors
from ...api.messages import GetMessageRequest, GetMessageResponse
from ...errors import ConfigurationError, ConsumerNotFoundError, JetStreamApiError
from ...groups.member.config import Plan, Settings
from ...groups.record.names import (
    ELASTIC_BUCKET,
    QUERY_MEMBER,
    QUERY_OWNER,
    QUERY_ROLE,
    ROLE,
    STATIC_BUCKET,
    elastic_consumer,
    key_of,
    partition_consumer,
    static_consumer,
    static_partition_consumer,
)
from ...groups.record.records import ElasticGroup, StaticGroup
from ...groups.server.consumers import stream_of
from ..frames import is_deletion
from ..links.control import Control
from ..links.link import Link
from ..options import parse_options
from ..options.group import GroupOptions

Group = StaticGroup | ElasticGroup

_MISSING = frozenset({Errors.STREAM_NOT_FOUND.err_code, Errors.NO_MESSAGE_FOUND.err_code})


def read_record(link: Link, stream: str, options: GroupOptions) -> Group:
    """The group's record.

    Raises:
        ConfigurationError: there is no such group.
        GroupRecordError: the record cannot be read.
    """
    bucket = STATIC_BUCKET if options.kind == "static" else ELASTIC_BUCKET
    request = GetMessageRequest(last_by_subj=f"$KV.{bucket}.{key_of(stream, options.name)}")
    try:
        answer = link.request(
            link.api("STREAM", "MSG", "GET", f"KV_{bucket}"), base.encode(request)
        )
        message = decode_response(answer.payload, GetMessageResponse).message
    except JetStreamApiError as error:
        if error.err_code not in _MISSING:
            raise
        raise _no_group(stream, options) from None
    if is_deletion(base64.b64decode(message.hdrs)):
        raise _no_group(stream, options)
    kind = StaticGroup if options.kind == "static" else ElasticGroup
    return kind.decode(stream, options.name, base64.b64decode(message.data), message.seq)


def _no_group(stream: str, options: GroupOptions) -> ConfigurationError:
    return ConfigurationError(
        f"jetstream source: stream {stream!r} has no {options.kind} group {options.name!r}; make one with "
        f"headrace group {options.kind} create"
    )


def member_of(group: Group, options: GroupOptions) -> str:
    """The member that the query is. Raises ConfigurationError if it does not say which."""
    if options.member:
        return options.member
    members = sorted(group.assignment())
    if len(members) != 1:
        raise ConfigurationError(
            f"jetstream source: group {options.name!r} has {len(members)} members"
            f"{': ' + ', '.join(members) if members else ''}; say with 'member' which of them the query is"
        )
    return members[0]


def work_stream(stream: str, options: GroupOptions) -> str:
    """The stream that members of this group read."""
    if options.kind == "static":
        return stream
    return stream_of(ElasticGroup(stream, options.name, 1))


_LOG: Final = logging.getLogger("headrace.spark")

MARGIN_S: Final = 0.5
FOR_GOOD: Final = "2200-01-01T00:00:00Z"
_OVERLAPS: Final = Errors.CONSUMER_WQ_NOT_UNIQUE.err_code
_NOT_FOUND: Final = Errors.CONSUMER_NOT_FOUND.err_code
_EXISTS: Final = Errors.CONSUMER_ALREADY_EXISTS.err_code


class Holding:
    """The consumers by which one query holds partitions.

    Args:
        settings: how members of the group make their consumers.
        member: as which the query takes part.
        owner: tells this run of the query from others.
    """

    def __init__(self, settings: Settings, member: str, owner: str) -> None:
        self._settings = settings
        self._member = member
        self._owner = owner
        self._held: dict[str, tuple[int, ...]] = {}
        self._floors: dict[int, int] = {}
        self._leaving: set[str] = set()  # being given back: an answer may be lost, and not the deed
        self._unanswered_since: dict[str, float] = {}

    @property
    def floors(self) -> Mapping[int, int]:
        """The partitions that are held, and up to where another member had handled each."""
        return self._floors

    def consumers(self) -> Mapping[str, tuple[int, ...]]:
        """The consumers that are held, and their partitions."""
        return self._held

    def check(self, control: Control) -> None:
        """Make sure that what is held still is ours.

        Raises:
            ConfigurationError: another query has taken it over.
        """
        names = list(self._held)
        subjects = [control.link.api("CONSUMER", "INFO", control.stream, name) for name in names]
        answers = control.link.request_many([(subject, b"") for subject in subjects])
        for name, answer in zip(names, answers, strict=True):
            try:
                info: ConsumerInfo | None = decode_response(answer.payload, ConsumerInfo)
            except JetStreamApiError as error:
                if error.err_code != _NOT_FOUND:
                    raise
                info = None
            if info is not None and info.config.metadata.get(QUERY_OWNER) == self._owner:
                continue
            if name in self._leaving:
                self._forget(name)
            elif info is None:
                _LOG.warning("consumer %r of stream %r was deleted", name, control.stream)
                self._forget(name)
            else:
                raise ConfigurationError(
                    f"jetstream source: another query has taken over consumer {name!r} of stream "
                    f"{control.stream!r} and takes part as this member; give each query a 'member' of its own"
                )

    def adopt(self, control: Control, names: Iterable[str]) -> None:
        """Take over what an earlier run of the query holds of these consumers, and nothing else."""
        for name in names:
            info = control.consumer_info(name)
            if info is not None and is_held_by(info, self._member):
                self._mark(control, info)

    def settle(self, control: Control, wanted: Mapping[str, Plan]) -> None:
        """Give back what is not wanted any more, and take what is and can be had.

        To be called between batches only: what is given back must be committed, and released.
        """
        for name in list(self._leaving):
            self._give_back(control, name)
        for name, partitions in list(self._held.items()):
            plan = wanted.get(name)
            kept = tuple(p for p in partitions if plan is not None and p in plan.partitions)
            if not kept:
                self._give_back(control, name)
            elif plan is not None and kept != partitions:
                self._narrow(control, name, kept, plan)
        for name, plan in wanted.items():
            if self._held.get(name) != plan.partitions:
                self._take(control, name, plan)

    def _forget(self, name: str) -> None:
        self._leaving.discard(name)
        for partition in self._held.pop(name):
            self._floors.pop(partition, None)

    def _keep(self, name: str, partitions: tuple[int, ...], floor: int) -> None:
        for partition in self._held.get(name, ()):
            if partition not in partitions:
                self._floors.pop(partition, None)
        self._held[name] = partitions
        for partition in partitions:
            self._floors.setdefault(partition, floor)

    # Taking

    def _take(self, control: Control, name: str, plan: Plan) -> None:
        info = control.consumer_info(name)
        if info is None:
            self._create(control, name, plan)
        elif is_held_by(info, self._member):
            self._mark(control, info, plan)
        elif not self._is_in_use(info):
            if self._settings.is_static:
                self._mark(control, info)
            else:
                control.delete_consumer(name)  # its messages are still in the work queue
                self._create(control, name, plan)

    def _create(self, control: Control, name: str, plan: Plan) -> None:
        config = structs.replace(
            self._settings.consumer(name, plan.filters),
            name="",
            durable_name=name,
            inactive_threshold=0.0,
            pause_until=FOR_GOOD,
            metadata=self._signs(),
            description="partitions of a Spark query; it delivers nothing",
        )
        self._change(control, config, plan.partitions, 0, "create")

    def _mark(self, control: Control, info: ConsumerInfo, plan: Plan | None = None) -> None:
        """Make a consumer that is there the query's, with its position, and with its filters or those of
        ``plan``.
        """
        metadata = {**info.config.metadata, **self._signs()}
        filters = info.config.filter_subjects if plan is None else plan.filters
        config = structs.replace(info.config, metadata=metadata, filter_subjects=filters)
        partitions = _partitions(info.config) if plan is None else plan.partitions
        floor = _floor(info, self._settings)
        self._change(control, config, partitions, floor, is_awake=not info.paused)

    def _change(
        self,
        control: Control,
        config: ConsumerConfig,
        partitions: tuple[int, ...],
        floor: int,
        action: str = "update",
        *,
        is_awake: bool = False,
    ) -> None:
        """Create or update a consumer, and hold it; nothing changes while another one is in the way."""
        name = config.durable_name or config.name
        try:
            control.create_consumer(config, action)
        except JetStreamApiError as error:
            if error.err_code not in (_OVERLAPS, _EXISTS):
                raise
            return
        if is_awake:
            subject = control.link.api("CONSUMER", "PAUSE", control.stream, name)
            answer = control.link.request(subject, base.encode(PauseRequest(pause_until=FOR_GOOD)))
            decode_response(answer.payload, PauseResponse)
        self._keep(name, partitions, floor)

    def _signs(self) -> dict[str, str]:
        return {ROLE: QUERY_ROLE, QUERY_MEMBER: self._member, QUERY_OWNER: self._owner}

    def _is_in_use(self, info: ConsumerInfo) -> bool:
        """Whether a member is at work there, or may come back to what it has not answered."""
        if info.config.metadata.get(ROLE) == QUERY_ROLE:
            return True  # of another query
        if info.num_waiting or any(group.pinned_client_id for group in info.priority_groups):
            self._unanswered_since.pop(info.name, None)
            return True
        if not info.num_ack_pending:
            return False
        # A client extends the time of what it handles: what was not answered for so long, nobody handles.
        longest = max((info.config.ack_wait, *info.config.backoff))
        since = self._unanswered_since.setdefault(info.name, time.monotonic())
        return time.monotonic() - since < longest + MARGIN_S

    # Giving back

    def _give_back(self, control: Control, name: str) -> None:
        self._leaving.add(name)
        if self._settings.is_static:
            give_back_static(control, name)
        else:
            control.delete_consumer(name)
        self._forget(name)

    def _narrow(self, control: Control, name: str, kept: tuple[int, ...], plan: Plan) -> None:
        info = control.consumer_info(name)
        if info is None:
            self._forget(name)
            return
        filters = tuple(f for f in info.config.filter_subjects if _partition(f) in kept)
        config = structs.replace(info.config, filter_subjects=filters)
        self._change(control, config, kept, 0)


def give_back_static(control: Control, name: str) -> None:
    """Make a static group's consumer its member's again; it goes on where the query committed.

    The signs last: as long as they are there, members leave it alone, and whoever gives back knows that it
    is to be done again.
    """
    subject = control.link.api("CONSUMER", "PAUSE", control.stream, name)
    with contextlib.suppress(ConsumerNotFoundError):
        decode_response(control.link.request(subject, b"").payload, PauseResponse)
    info = control.consumer_info(name)
    if info is not None:
        control.create_consumer(released(info.config), "update")


def released(config: ConsumerConfig) -> ConsumerConfig:
    """The consumer of a static group's member without the signs of a query, once it is resumed."""
    signs = (ROLE, QUERY_MEMBER, QUERY_OWNER)
    metadata = {k: v for k, v in config.metadata.items() if k not in signs}
    return structs.replace(config, metadata=metadata, description="")


def is_held_by(info: ConsumerInfo, member: str) -> bool:
    """Whether a query that takes part as this member holds the consumer."""
    metadata = info.config.metadata
    return metadata.get(ROLE) == QUERY_ROLE and metadata.get(QUERY_MEMBER) == member


def names_of(group: StaticGroup | ElasticGroup, member: str) -> list[str]:
    """The consumers that a member can have, whatever the record gives it at the moment."""
    is_static = isinstance(group, StaticGroup)
    if group.layout == "interoperable":
        return [static_consumer(group.name, member) if is_static else elastic_consumer(member)]
    if is_static:
        return [static_partition_consumer(group.name, p) for p in range(group.max_members)]
    return [partition_consumer(p) for p in range(group.max_members)]


def _floor(info: ConsumerInfo, settings: Settings) -> int:
    """Up to where another member has handled it; a work queue has nothing that was handled."""
    return info.ack_floor.stream_seq if settings.is_static else 0


def _partition(pattern: str) -> int:
    return int(pattern.partition(".")[0])


def _partitions(config: ConsumerConfig) -> tuple[int, ...]:
    filters = config.filter_subjects or (config.filter_subject,)
    return tuple(sorted({_partition(pattern) for pattern in filters}))


def give_back(
    stream: str,
    group: str,
    member: str,
    *,
    kind: Literal["elastic", "static"] = "elastic",
    **options: str,
) -> list[str]:
    """Let ordinary instances have the partitions of ``member``, which a stopped query holds.

    To be called when the query is stopped for good; a running one fails then. What it had read but not
    committed is handled by the next owner.

    Args:
        stream, group, member, kind: as the query's options.
        options: the options of the connection, such as ``servers``.

    Returns:
        the names of the consumers that were let go of.

    Raises:
        ConfigurationError: there is no such group, or an option is wrong.
    """
    raw = {**options, "stream": stream, "group": group, "groupKind": kind, "member": member}
    parsed = parse_options(raw, streaming=True)
    assert parsed.group is not None
    link = Link.open(parsed.connection)
    try:
        record = read_record(link, stream, parsed.group)
        control = Control(link, work_stream(stream, parsed.group))
        found = []
        for name in names_of(record, member):
            info = control.consumer_info(name)
            if info is None or not is_held_by(info, member):
                continue
            if kind == "static":
                give_back_static(control, name)
            else:
                control.delete_consumer(name)
            found.append(name)
        return found
    finally:
        link.close()
