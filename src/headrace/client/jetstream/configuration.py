"""Configurations as users give them, by document and by keyword, and as servers are told them."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, Literal, TypeVar

import msgspec

from ...api.base import Document
from ...api.streams import ExternalStream, StreamConfig, StreamSource
from ...api.times import format_time
from ...errors import BucketNotFoundError, ConfigurationError, StreamNotFoundError

D = TypeVar("D", bound=Document)

_SERVERS: Final = "_nats."
_FILTERS: Final = ("filter_subject", "filter_subjects")  # of these a consumer has one
_BUCKET = re.compile(r"[a-zA-Z0-9_-]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def config_from(kind: type[D], config: D | None, values: Mapping[str, object]) -> D:
    """A configuration from a document, from keywords, or from both (the keywords win).

    In keywords a duration may be a timedelta, a time a datetime, a sequence a list.
    Raises ConfigurationError.
    """
    if config is not None and not isinstance(config, kind):
        hint = f"name={config!r}" if isinstance(config, str) else "its fields by name"
        raise ConfigurationError(f"{config!r:.80} is no {kind.__name__}; pass one, or {hint}")
    known = set(kind.__struct_fields__)
    unknown = sorted(set(values) - known)
    if unknown:
        raise ConfigurationError(
            f"{kind.__name__} has no field {', '.join(unknown)}; it has {', '.join(sorted(known))}"
        )
    fields = {name: _plain(value) for name, value in values.items()}
    given = {} if config is None else {n: getattr(config, n) for n in kind.__struct_fields__}
    return kind(**{**given, **{n: _checked(kind, n, value) for n, value in fields.items()}})


def merged(present: D, config: D | None, values: Mapping[str, object]) -> D:
    """``present`` with what is named: every keyword, and what a document has other than its defaults.

    Raises ConfigurationError.
    """
    kind = type(present)
    asked: Document = config_from(kind, config, values)
    if isinstance(asked, StreamConfig):
        asked = with_external_domains(asked)
    defaults, named = kind(), set(values)
    if config is not None:
        fields = kind.__struct_fields__
        named |= {name for name in fields if getattr(config, name) != getattr(defaults, name)}
    named -= {"name", "durable_name"}
    changes = {name: getattr(asked, name) for name in named}
    for one, other in (_FILTERS, _FILTERS[::-1]):
        if one in named and other not in named:
            changes[other] = getattr(defaults, other)
    age = changes.get("max_age", 0.0)
    if isinstance(present, StreamConfig) and age and "duplicate_window" not in named:
        changes["duplicate_window"] = min(present.duplicate_window, age)  # it may not be longer
    return msgspec.structs.replace(present, **changes)


def differences(there: D, asked: D) -> dict[str, tuple[object, object]]:
    """The settings in which a stream or consumer differs from what was asked for: each with both values.

    Left out is what a server sets by itself: the subjects of a stream that was given none, its duplicate
    window, metadata of its own, and no limit (-1) where 0 was given.
    """
    found: dict[str, tuple[object, object]] = {}
    for name in asked.__struct_fields__:
        before, after = getattr(there, name), getattr(asked, name)
        if name == "metadata":
            before, after = _own(before), _own(after)
        is_by_server = not after and (name in ("subjects", "duplicate_window") or before == -1)
        if before != after and name != "pedantic" and not is_by_server:
            found[name] = (before, after)
    return found


def _own(metadata: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in metadata.items() if not key.startswith(_SERVERS)}


def bucket_name(bucket: str) -> str:
    """The name of a bucket. Raises ConfigurationError for what cannot be one."""
    if _BUCKET.fullmatch(bucket) is None:
        raise ConfigurationError(
            f"bucket name {bucket!r}: accepted are letters, digits, '-' and '_'"
        )
    return bucket


@contextmanager
def known_bucket(bucket: str) -> Iterator[None]:
    """What misses the stream behind a bucket misses the bucket. Raises BucketNotFoundError."""
    try:
        yield
    except StreamNotFoundError as error:
        raise BucketNotFoundError(
            error.code, error.err_code, f"there is no bucket {bucket!r}: {error.description}"
        ) from error


def bucket_stream(
    what: str, known: Iterable[str], options: Mapping[str, Any], **more: Any
) -> StreamConfig:
    """The stream behind a bucket, of the options that all kinds have in common, and ``more``.

    Raises ConfigurationError for an option that is not ``known``.
    """
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ConfigurationError(
            f"{what} has no option {', '.join(unknown)}; it has {', '.join(sorted(known))}"
        )
    return StreamConfig(
        description=options.get("description", ""),
        max_age=seconds(options.get("ttl", 0.0)),
        max_bytes=options.get("max_bytes", -1),
        storage=options.get("storage", "file"),
        num_replicas=options.get("num_replicas", 1),
        placement=options.get("placement"),
        compression="s2" if options.get("compression") else "none",
        metadata=dict(options.get("metadata", {})),
        discard="new",
        allow_rollup_hdrs=True,
        **more,
    )


DUPLICATE_WINDOW_MAX_S: Final = 120.0

BUCKET_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "description": ("description",),
    "ttl": ("max_age",),
    "max_bytes": ("max_bytes",),
    "storage": ("storage",),
    "num_replicas": ("num_replicas",),
    "placement": ("placement",),
    "compression": ("compression",),
    "metadata": ("metadata",),
}
"""What each option that all kinds of buckets have sets of the stream behind it."""


def duplicate_window(ttl: float) -> float:
    """For how many seconds a bucket remembers message ids; 0 of ``ttl`` is none."""
    return min(ttl or DUPLICATE_WINDOW_MAX_S, DUPLICATE_WINDOW_MAX_S)


def changed_bucket(
    present: StreamConfig,
    wanted: StreamConfig,
    named: Iterable[str],
    fields: Mapping[str, tuple[str, ...]],
) -> StreamConfig:
    """``present`` with what the ``named`` options set of ``wanted``; ``fields`` says what they set."""
    changes = {field: getattr(wanted, field) for option in named for field in fields[option]}
    changed = msgspec.structs.replace(present, **changes)
    if {"max_age", "mirror", "sources"}.isdisjoint(changes):
        return changed
    window = present.duplicate_window
    if changed.mirror is not None or changed.sources:
        window = 0.0
    elif window in (0.0, duplicate_window(present.max_age)):
        window = duplicate_window(changed.max_age)  # nobody has chosen another
    elif changed.max_age:
        window = min(window, changed.max_age)
    return msgspec.structs.replace(changed, duplicate_window=window)


def _checked(kind: type[Document], name: str, value: Any) -> Any:
    """``value``, if it is what the field ``name`` may be; one text where a list of them is wanted is a
    list of one. Raises ConfigurationError."""
    expected = _types_of(kind)[name]
    if isinstance(value, str) and typing.get_origin(expected) is tuple:
        value = (value,)
    try:
        return msgspec.convert(value, expected)
    except msgspec.ValidationError as error:
        if typing.get_origin(expected) is Literal:
            accepted = ", ".join(map(repr, typing.get_args(expected)))
            raise ConfigurationError(f"{name} is {value!r}; accepted: {accepted}") from None
        is_duration = name in kind.durations
        hint = "; accepted are seconds, or a timedelta" if is_duration else ""
        raise ConfigurationError(f"{name} is {value!r:.200}: {error}{hint}") from None


@cache
def _types_of(kind: type[Document]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return tuple(_plain(item) for item in value)
    return value


def seconds(duration: float | timedelta) -> float:
    """A duration in either form."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def moment(time: datetime | None) -> str | None:
    """``time_text`` of a time that may be absent."""
    return None if time is None else time_text(time)


def time_text(moment: datetime) -> str:
    """RFC 3339 for a datetime; without a zone it is taken as local time, as Python does."""
    difference = moment.astimezone(UTC) - _EPOCH
    microseconds = (difference.days * 86_400 + difference.seconds) * 1_000_000
    return format_time((microseconds + difference.microseconds) * 1_000)


def with_external_domains(config: StreamConfig) -> StreamConfig:
    """The configuration with each source's ``domain``, which clients speak of, as the API prefix that
    servers know."""
    sources = tuple(_external(source) for source in config.sources)
    mirror = None if config.mirror is None else _external(config.mirror)
    if sources == config.sources and mirror == config.mirror:
        return config
    return msgspec.structs.replace(config, sources=sources, mirror=mirror)


def _external(source: StreamSource) -> StreamSource:
    if not source.domain:
        return source
    deliver = source.external.deliver if source.external is not None else ""
    external = ExternalStream(api=f"$JS.{source.domain}.API", deliver=deliver)
    return msgspec.structs.replace(source, domain="", external=external)
