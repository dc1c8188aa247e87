"""The consumers of a member: what the user wants of them, and what the group sets. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypedDict, TypeVar

import msgspec

from ...api.consumers import ConsumerConfig
from ...subjects import matches
from ..errors import GroupConfigurationError
from ..record import names
from ..record.assignment import key_positions
from ..record.records import ElasticGroup, StaticGroup

if TYPE_CHECKING:
    from ...handling.failure_policy import OnFailure


M = TypeVar("M")


class JoinOptions(TypedDict, Generic[M], total=False):
    """What ``Membership`` says of them. ``M`` is the kind of message that a handler gets."""

    concurrency: int
    key: Callable[[M], Hashable] | None
    on_failure: OnFailure | None
    on_active: Callable[[int], object] | None
    on_standby: Callable[[], object] | None
    on_error: Callable[[Exception], object] | None


ACK_WAIT_S: Final = 5.0
PIN_S_MIN: Final = 1.0
PULL_S_MIN: Final = 1.0
PARTITION_INACTIVE_S: Final = 60.0  # a partition's consumer survives a change of its owner


class Plan(NamedTuple):
    """One consumer that a member wants to be pinned to.

    Attributes:
        consumer: its name.
        partitions: those it reads.
        filters: its filter subjects.
        is_shared: it stays for the partition's next owner (layout ``per_partition``).
        changed: how often the group was changed: what has the same name and filters may have other keys.
    """

    consumer: str
    partitions: tuple[int, ...]
    filters: tuple[str, ...]
    is_shared: bool = False
    changed: int = 0


def plans(group: StaticGroup | ElasticGroup, member: str) -> dict[str, Plan]:
    """The consumers of ``member``, by name; none if it has no partition."""
    owned = tuple(group.assignment().get(member, ()))
    if not owned:
        return {}
    is_static = isinstance(group, StaticGroup)
    changed = 0 if isinstance(group, StaticGroup) else group.changed
    if group.layout == "interoperable":
        name = (
            names.static_consumer(group.name, member)
            if is_static
            else names.elastic_consumer(member)
        )
        return {name: Plan(name, owned, group.filter_subjects(owned), changed=changed)}
    wanted = {}
    for number in owned:
        name = (
            names.static_partition_consumer(group.name, number)
            if is_static
            else names.partition_consumer(number)
        )
        # A work queue has nothing but what the group takes. One filter for its whole life, as its owners
        # come from members or from mappings.
        filters = group.filter_subjects((number,)) if is_static else (f"{number}.>",)
        wanted[name] = Plan(name, (number,), filters, True, changed)
    return wanted


class Settings:
    """What is the same for all consumers of a group: the user's configuration, completed.

    Args:
        config: what the user gave. Names, filters and the priority group are the group's own.
        is_static: whether the group is static; an elastic one needs explicit acks.
        layout: the group's.
        first: the message that a static group begins with, as a sequence; 0: the first there is.

    Attributes:
        is_static: whether the group is.
        ack_wait: seconds after which a message that nobody answered comes again for the first time.
        redelivery_s: the longest such time.
        pin_s: seconds that the pin lasts without a pull.
        lease_s: seconds for which neither the pin nor a message that came by it can be another's.
        pull_s: seconds that a pull waits.
        tick_s: seconds after which what failed for no known reason is tried again.
        acks: whether messages are acknowledged at all.
        max_ack_pending: the user's; 0 is the server's default, -1 no limit.

    Raises:
        GroupConfigurationError: the group cannot work with it.
    """

    def __init__(
        self, config: ConsumerConfig | None, *, is_static: bool, layout: str, first: int = 0
    ) -> None:
        config = config or ConsumerConfig()
        if first and config.deliver_policy != "all":
            raise GroupConfigurationError(
                f"deliver_policy is {config.deliver_policy!r}, and the group begins with message {first}: "
                "leave it out"
            )
        if config.deliver_subject:
            raise GroupConfigurationError(
                f"deliver_subject is {config.deliver_subject!r}; members of a group pull: leave it out"
            )
        if not is_static and config.ack_policy != "explicit":
            raise GroupConfigurationError(
                "the ack policy when consuming from elastic consumer groups must be explicit"
            )
        ack_wait = config.ack_wait or ACK_WAIT_S
        self.ack_wait = config.backoff[0] if config.backoff else ack_wait
        self.pin_s = max(ack_wait, PIN_S_MIN)
        self.pull_s = max(ack_wait / 2, PULL_S_MIN)
        self.tick_s = ack_wait + 0.5
        self.redelivery_s = max((ack_wait, *config.backoff))
        self.lease_s = min((self.pin_s, ack_wait, *config.backoff))
        self.acks = config.ack_policy != "none"
        self.max_ack_pending = config.max_ack_pending
        inactive = config.inactive_threshold
        if not is_static:
            inactive = PARTITION_INACTIVE_S if layout == "per_partition" else ack_wait
        self.is_static = is_static
        self._config = msgspec.structs.replace(
            config,
            name="",
            durable_name="",
            filter_subject="",
            ack_wait=ack_wait,
            inactive_threshold=inactive,
            priority_groups=(names.PRIORITY_GROUP,),
            priority_policy="pinned_client",
            priority_timeout=self.pin_s,
        )
        if first:
            self._config = msgspec.structs.replace(
                self._config, deliver_policy="by_start_sequence", opt_start_seq=first
            )

    def consumer(self, name: str, filters: Sequence[str]) -> ConsumerConfig:
        """The configuration of one consumer; other implementations make the same of the same."""
        if self.is_static:
            return msgspec.structs.replace(
                self._config, durable_name=name, filter_subjects=tuple(filters)
            )
        return msgspec.structs.replace(self._config, name=name, filter_subjects=tuple(filters))


def check_concurrency(
    concurrency: object, config: ConsumerConfig | None, *, has_handler: bool
) -> None:
    """Raise GroupConfigurationError unless so many handlers can run at once."""
    if not isinstance(concurrency, int) or concurrency < 1:
        raise GroupConfigurationError(f"concurrency is {concurrency!r}; accepted: 1 or more")
    if not has_handler and concurrency > 1:
        raise GroupConfigurationError(
            f"concurrency is {concurrency}, and there is no handler; who iterates gets one message "
            "at a time"
        )
    if concurrency > 1 and config is not None and config.ack_policy == "all":
        raise GroupConfigurationError(
            f"concurrency is {concurrency}, and ack_policy 'all' acknowledges what other handlers still "
            "work at; accepted: 'explicit', or a concurrency of 1"
        )


class Placed(Protocol):
    """A message, as far as it matters here."""

    @property
    def subject(self) -> str: ...

    @property
    def partition(self) -> int: ...


def key_function(group: StaticGroup | ElasticGroup) -> Callable[[Placed], Hashable]:
    """The key as the group partitions by it.

    Of an elastic group these are the tokens of the subject that its partitioning wildcards name, or the
    whole subject. What a static group's stream partitions by is not known here: the partition itself.
    """
    if isinstance(group, StaticGroup):
        return lambda message: message.partition
    rules = [
        (each.filter.encode(), key_positions(each)) for each in group.partitioning_filters or ()
    ]
    if not any(positions for _, positions in rules):
        return lambda message: message.subject

    def key(message: Placed) -> Hashable:
        subject = message.subject
        for pattern, positions in rules:
            if matches(pattern, subject.encode()):
                tokens = subject.split(".")
                return tuple(tokens[i] for i in positions) if positions else subject
        return subject

    return key
