"""What an operator may choose about the hub, its sessions and its accounts: plain values, checked where
they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

import msgspec

from ... import limits
from ...errors import ConfigurationError, InvalidSubjectError
from ...field_docs import described
from ...subjects import check_pattern, is_subset, overlaps
from ...transforms import SubjectTransform

DEFAULT_ACCOUNT: Final = "$G"
SYSTEM_ACCOUNT: Final = "$SYS"

Kind = Literal["service", "stream"]
COMPATIBLE_VERSION = "2.14.0"
"""The nats-server whose behaviour clients may expect: they switch features by ``INFO.version``."""
COMPATIBLE_API_LEVEL = 4
"""The JetStream API level of that version."""


@described
class JetStreamLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one account may use; −1 for no limit.

    ``max_consumers`` holds for each stream, as in nats-server. ``max_bytes_required`` refuses a
    stream without ``max_bytes``; ``max_stream_…`` limits the ``max_bytes`` of each. With ``tiers`` the
    limits are theirs, by the replicas of a stream: ``R1``, which is what one node has, ``R3`` …
    """

    max_memory: int = -1
    """Bytes of all its streams in memory; -1, the default: any number."""

    max_storage: int = -1
    """Bytes of all its streams in files; -1, the default: any number."""

    max_streams: int = -1
    """How many streams it may have; -1, the default: any number."""

    max_consumers: int = -1
    """How many consumers each of its streams may have; -1, the default: any number."""

    max_ack_pending: int = -1
    """The most ``max_ack_pending`` that a consumer may have; -1, the default: any number."""

    max_stream_memory: int = -1
    """The most ``max_bytes`` of one stream in memory; -1, the default: any number."""

    max_stream_storage: int = -1
    """The most ``max_bytes`` of one stream in files; -1, the default: any number."""

    max_bytes_required: bool = False
    """Whether a stream must have ``max_bytes``; False by default."""

    tiers: tuple[tuple[str, JetStreamLimits], ...] = ()
    """Limits by the replicas of a stream: ``R1``, which is what one node has, ``R3`` …; empty, the
    default: these here hold."""

    def of_one_node(self) -> JetStreamLimits | None:
        """What holds for streams without replicas; None if there must not be any."""
        return dict(self.tiers).get("R1") if self.tiers else self


@described
class AssetLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a server allows each stream, consumer and batch, of whatever account; 0 for its default.

    Without ``max_ack_pending``, ``max_request_batch`` and ``duplicate_window`` (seconds) any value is
    allowed. ``batch_idle`` is in seconds; batches count apart by their kind, atomic or fast.
    """

    max_ack_pending: int = 0
    """The most ``max_ack_pending`` that a consumer may have; 0, the default: any number."""

    max_request_batch: int = 0
    """The most messages one pull may ask for; 0, the default: any number."""

    duplicate_window: float = 0.0
    """The most seconds of a stream's ``duplicate_window``; 0, the default: any time."""

    batches_per_stream: int = 0
    """How many batches one stream may have open, of each kind; 0, the default: see the limits."""

    batches: int = 0
    """How many batches may be open, of each kind; 0, the default: see the limits."""

    batch_messages: int = 0
    """How many messages an atomic batch may have; 0, the default, is 1,000."""

    batch_idle: float = 0.0
    """Seconds without a message after which a batch is forgotten; 0, the default, is 10 seconds."""


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """Subjects of an account that others may import: all, or only ``accounts``.

    ``many_answers``: a service may answer one request more than once.
    """

    kind: Kind
    subject: bytes
    accounts: frozenset[str] | None = None
    many_answers: bool = False


class Import(msgspec.Struct, frozen=True, kw_only=True):
    """``subject`` of ``account``, known in the importing account as ``local``.

    Both have the same wildcards. ``local`` may name them, ``$1``, in an order of its own. ``share``: a
    service learns which client asks, and not only which account.
    """

    kind: Kind
    account: str
    subject: bytes
    local: bytes
    share: bool = False

    @property
    def pattern(self) -> bytes:
        return b".".join(b"*" if _is_reference(t) else t for t in self.local.split(b"."))

    def transform(self) -> SubjectTransform:
        """From the exporter's subject to ours for a stream, the other way round for a service.

        Raises InvalidSubjectError if the wildcards of both do not fit each other.
        """
        ours, theirs = self.local.split(b"."), self.subject.split(b".")
        names = [b"$%d" % n for n in range(1, theirs.count(b"*") + 1)]
        order = [token for token in ours if _is_reference(token)]
        if not order:
            order = list(names)
            if ours.count(b"*") != len(names):
                raise InvalidSubjectError(
                    f"{self.local.decode()!r} needs the wildcards of {self.subject.decode()!r}"
                )
        if sorted(order) != names:
            raise InvalidSubjectError(
                f"{self.local.decode()!r} must use each of {b', '.join(names).decode()} once"
            )
        if self.kind == "stream":
            return SubjectTransform(self.subject, b".".join(_named(ours, order)))
        back = [b"$%d" % (order.index(name) + 1) for name in names]
        return SubjectTransform(self.pattern, b".".join(_named(theirs, back)))


@described
class AccountOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One account; ``jetstream`` of None: it has no streams.

    ``connections_max``, ``subscriptions_max`` and ``payload_max`` of -1 are no limit.
    """

    name: str
    """Its name."""

    jetstream: JetStreamLimits | None = None
    """What its streams may use; None, the default: it has no streams."""

    exports: tuple[Export, ...] = ()
    """Subjects that other accounts may import; empty by default."""

    imports: tuple[Import, ...] = ()
    """Subjects of other accounts; empty by default."""

    connections_max: int = -1
    """How many clients the account may have; -1, the default: any number."""

    subscriptions_max: int = -1
    """How many subscriptions each of its clients may have; -1, the default: what the server allows."""

    payload_max: int = -1
    """The most bytes of a message of its clients; -1, the default: what the server allows."""


def check_accounts(accounts: Iterable[AccountOptions]) -> None:
    """Raise ConfigurationError for the first import that nobody exports, or that goes in circles."""
    by_name: dict[str, AccountOptions] = {}
    for account in accounts:
        if account.name in by_name:
            raise ConfigurationError(f"accounts: {account.name!r} is there twice")
        by_name[account.name] = account
    for account in by_name.values():
        for export in account.exports:
            _check_subject(export.subject, f"accounts: {account.name}: exports")
        for wanted in account.imports:
            _check_import(wanted, account, by_name)
    _check_circles(by_name)


def _check_import(
    wanted: Import, account: AccountOptions, by_name: Mapping[str, AccountOptions]
) -> None:
    what = f"accounts: {account.name}: imports: the {wanted.kind} {wanted.subject.decode()!r}"
    _check_subject(wanted.subject, what)
    _check_subject(wanted.pattern, what)
    try:
        wanted.transform()
    except InvalidSubjectError as error:
        raise ConfigurationError(f"{what}: {error}") from None
    exporter = by_name.get(wanted.account)
    if exporter is None:
        raise ConfigurationError(f"{what}: there is no account {wanted.account!r}")
    if exporter is account:
        raise ConfigurationError(f"{what}: an account cannot import from itself")
    for export in exporter.exports:
        if export.kind == wanted.kind and is_subset(wanted.subject, export.subject):
            if export.accounts is None or account.name in export.accounts:
                return
            raise ConfigurationError(f"{what}: {exporter.name} does not export it to this account")
    raise ConfigurationError(f"{what}: {exporter.name} does not export it")


def _check_subject(subject: bytes, what: str) -> None:
    try:
        check_pattern(subject)
    except InvalidSubjectError as error:
        raise ConfigurationError(f"{what}: {error}") from None


def _check_circles(by_name: Mapping[str, AccountOptions]) -> None:
    """A message that came back to where it was would go round for ever."""
    # From account and pattern to account and pattern.
    steps: list[tuple[str, bytes, str, bytes]] = []
    for account in by_name.values():
        for wanted in account.imports:
            ours, theirs = (account.name, wanted.pattern), (wanted.account, wanted.subject)
            steps.append((*theirs, *ours) if wanted.kind == "stream" else (*ours, *theirs))

    def after(step: tuple[str, bytes, str, bytes]) -> Iterator[tuple[str, bytes, str, bytes]]:
        for other in steps:
            if other[0] == step[2] and overlaps(other[1], step[3]):
                yield other

    done: set[tuple[str, bytes, str, bytes]] = set()
    for start in steps:
        path = [(start, after(start))]
        on_path = {start}
        while path and start not in done:
            step, onward = path[-1]
            following = next(onward, None)
            if following is None:
                path.pop()
                on_path.discard(step)
                done.add(step)
            elif following in on_path:
                raise ConfigurationError(
                    f"accounts: the import of {following[1].decode()!r} goes in a circle"
                )
            elif following not in done:
                on_path.add(following)
                path.append((following, after(following)))


def _is_reference(token: bytes) -> bool:
    return token[:1] == b"$" and token[1:].isdigit()


def _named(tokens: list[bytes], names: list[bytes]) -> list[bytes]:
    """The tokens with each wildcard replaced by the next name."""
    rest = iter(names)
    return [next(rest) if token == b"*" or _is_reference(token) else token for token in tokens]


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


class HubOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings, with the limits of ``headrace.limits`` as defaults.

    ``host`` and ``port`` are what INFO shows. ``server_name`` empty: the generated server id.
    """

    server_name: str = ""
    host: str = "127.0.0.1"
    port: int = 4222
    headers: bool = True
    """Whether messages may have headers."""
    max_payload: int = limits.PAYLOAD_BYTES_MAX
    max_control_line: int = limits.CONTROL_LINE_BYTES_MAX
    connections_max: int = limits.CONNECTIONS_MAX
    subscriptions_max: int = limits.SUBSCRIPTIONS_PER_CONNECTION_MAX
    subscription_tokens_max: int = limits.SUBSCRIPTION_TOKENS_MAX
    outbound_bytes_max: int = limits.OUTBOUND_BYTES_MAX
    ingest_pending_bytes_max: int = limits.INGEST_PENDING_BYTES_MAX
    auth_timeout_ns: int = _ns(limits.AUTH_TIMEOUT_S)
    ping_interval_ns: int = _ns(limits.PING_INTERVAL_S)
    ping_first_ns: int = _ns(2.0)
    pings_out_max: int = limits.PINGS_OUT_MAX
    domain: str = ""
    """Of JetStream; "" for none."""
    tls_required: bool = False
    tls_timeout_ns: int = _ns(limits.TLS_TIMEOUT_S)
    websocket: tuple[str, int, bool] | None = None
    """Of the listener for WebSockets, for monitoring: host, port, whether it has TLS; None: there is none."""
    tls_verify: bool = False
    """Whether clients are asked for certificates."""
    max_memory_bytes: int = -1
    max_storage_bytes: int = -1
    """What all streams may hold, for monitoring; -1: any amount."""
    sync: str = "always"
    """The disk mode, for monitoring."""
    store_dir: str = ""
    """Where the store is, for monitoring; empty: in memory."""
