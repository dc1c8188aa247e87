"""Sources and mirrors: what a configuration may ask for, and what it means.

Texts and error numbers are the public server's. A stream to copy from need not exist yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Final, NamedTuple, Protocol

import msgspec

from .....api.base import DocumentError
from .....api.errors import Errors, ErrorSpec
from .....api.streams import StreamConfig, StreamSource, SubjectTransformConfig
from .....api.times import parse_time
from .....errors import InvalidSubjectError
from .....limits import SOURCE_RULES_MAX, SOURCES_MAX
from .....pattern_tree import PatternTree
from .....subjects import SubjectFilter, is_valid_pattern, is_valid_subject, overlaps
from .....transforms import SubjectTransform
from ...ports import Randomness
from .options import FORBIDDEN_IN_NAMES, Refused, invalid

_DIGITS: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_EVERYTHING: Final = ">"
_API: Final = b"$JS.API"
COMPARED_MAX: Final = 20_000  # subjects with prefixes, one by one: some 25 ms


class Configured(Protocol):
    """A stream, as far as others' configurations look at it."""

    @property
    def config(self) -> StreamConfig: ...


class Route(NamedTuple):
    """Which messages of an origin are copied, and what becomes of their subjects."""

    filter: SubjectFilter | None
    rename: Callable[[bytes], bytes] | None
    """The subject under which a message is stored; None leaves every subject as it is."""


class _Words(NamedTuple):
    """The refusals of a kind of copy: source or mirror."""

    name: ErrorSpec
    both: ErrorSpec
    filter: ErrorSpec
    transform: ErrorSpec
    overlap: ErrorSpec
    size: ErrorSpec
    consumer: ErrorSpec


_SOURCE: Final = _Words(
    Errors.SOURCE_INVALID_NAME,
    Errors.SOURCE_MULTIPLE_FILTERS,
    Errors.SOURCE_INVALID_FILTER,
    Errors.SOURCE_INVALID_TRANSFORM,
    Errors.SOURCE_OVERLAPPING_FILTERS,
    Errors.SOURCE_MAX_MESSAGE_SIZE_TOO_BIG,
    Errors.SOURCE_CONSUMER_INVALID,
)
_MIRROR: Final = _Words(
    Errors.MIRROR_INVALID_NAME,
    Errors.MIRROR_MULTIPLE_FILTERS,
    Errors.MIRROR_INVALID_FILTER,
    Errors.MIRROR_INVALID_TRANSFORM,
    Errors.MIRROR_OVERLAPPING_FILTERS,
    Errors.MIRROR_MAX_MESSAGE_SIZE_TOO_BIG,
    Errors.MIRROR_CONSUMER_INVALID,
)


def copies(config: StreamConfig) -> tuple[StreamSource, ...]:
    """Whom a stream copies from: its mirror or its sources."""
    return (config.mirror,) if config.mirror is not None else config.sources


def index_name(source: StreamSource) -> str:
    """What tells one source of a stream from another: the origin and all that is done to subjects.

    Three words; blanks inside of a transform's functions mean nothing and are left out.
    """
    name = source.name
    if source.external is not None:  # streams of other accounts may have the same name
        name += ":" + short_hash(source.external.api)
    if source.consumer is not None:
        name += ":C=" + short_hash(source.consumer.name)
    transforms = source.subject_transforms
    if not transforms:
        return f"{name} {source.filter_subject or _EVERYTHING} {_EVERYTHING}"
    sources = "\f".join(rule.src or _EVERYTHING for rule in transforms)
    destinations = "\f".join("".join(rule.dest.split()) or _EVERYTHING for rule in transforms)
    return f"{name} {sources} {destinations}"


def compile_route(source: StreamSource, random: Randomness) -> Route:
    """The route of a checked source. Raises InvalidSubjectError for one that was not checked."""
    if not source.subject_transforms:
        pattern = source.filter_subject
        filter = SubjectFilter([pattern.encode()]) if pattern not in ("", _EVERYTHING) else None
        return Route(filter, None)
    patterns = [(rule.src or _EVERYTHING).encode() for rule in source.subject_transforms]
    filter = None if _EVERYTHING.encode() in patterns else SubjectFilter(patterns)
    rules = [_compile_rule(rule, random).apply for rule in source.subject_transforms if rule.dest]
    if not rules:
        return Route(filter, None)
    return Route(filter, _renaming(rules))


def _compile_rule(rule: SubjectTransformConfig, random: Randomness) -> SubjectTransform:
    source = (rule.src or _EVERYTHING).encode()
    return SubjectTransform(source, rule.dest.encode(), random=lambda n: random.getrandbits(32) % n)


def _renaming(rules: list[Callable[[bytes], bytes | None]]) -> Callable[[bytes], bytes]:
    if len(rules) == 1:
        sole = rules[0]
        return lambda subject: sole(subject) or subject

    def rename(subject: bytes) -> bytes:
        for rule in rules:
            renamed = rule(subject)
            if renamed is not None:
                return renamed
        return subject

    return rename


def check_copies(
    config: StreamConfig, streams: Mapping[str, Configured], random: Randomness
) -> StreamConfig:
    """The configuration as it is stored, or a refusal of its mirror or sources."""
    check_counts(config)
    if config.mirror is not None:
        _check_mirror(config)
        _check_consumer(config.mirror, _MIRROR)
        _check_source(config, config.mirror, streams, random, _MIRROR)
        origin = streams.get(config.mirror.name) if config.mirror.external is None else None
        if origin is not None and config.mirror_direct != origin.config.allow_direct:
            config = msgspec.structs.replace(config, mirror_direct=origin.config.allow_direct)
    if config.sources and config.allow_msg_schedules:
        raise Refused(Errors.SOURCE_WITH_SCHEDULES)
    known: set[str] = set()
    consumers: set[tuple[str, str, str]] = set()
    for source in config.sources:
        _check_name(source, _SOURCE)
        index = index_name(source)
        if index in known:
            raise Refused(Errors.SOURCE_DUPLICATE)
        known.add(index)
        _check_source(config, source, streams, random, _SOURCE)
        if source.consumer is not None:
            api = source.external.api if source.external is not None else ""
            consumer = (source.name, api, source.consumer.name)
            if consumer in consumers:
                raise Refused(Errors.SOURCE_CONSUMER_DUPLICATE)
            consumers.add(consumer)
    _check_prefixes(config, streams)
    _check_cycles(config, streams)
    return config


def check_counts(config: StreamConfig) -> None:
    """Refuse more than can be looked at in one turn of the loop: each is checked, opened and shown."""
    if len(config.sources) > SOURCES_MAX:
        raise invalid(f"too many sources: {len(config.sources)}; accepted are {SOURCES_MAX}")
    rules = sum(len(source.subject_transforms) for source in copies(config))
    if rules > SOURCE_RULES_MAX:
        raise invalid(
            f"too many subject transforms of sources: {rules}; accepted are {SOURCE_RULES_MAX}"
        )


def check_copies_update(old: StreamConfig, new: StreamConfig) -> None:
    """Refuse to turn a mirror into one of something else; to make it a plain stream is fine."""
    if new.mirror is not None and new.mirror != old.mirror:
        raise Refused(Errors.STREAM_MIRROR_NOT_UPDATABLE)


def _check_mirror(config: StreamConfig) -> None:
    if config.first_seq > 0:
        raise Refused(Errors.MIRROR_WITH_FIRST_SEQ)
    if config.subjects:
        raise Refused(Errors.MIRROR_WITH_SUBJECTS)
    if config.sources:
        raise Refused(Errors.MIRROR_WITH_SOURCES)
    if config.allow_msg_counter:
        raise Refused(Errors.MIRROR_WITH_COUNTERS)
    if config.allow_atomic:
        raise Refused(Errors.MIRROR_WITH_ATOMIC_PUBLISH)
    if config.allow_batched:
        raise Refused(Errors.MIRROR_WITH_BATCH_PUBLISH)
    if config.allow_msg_schedules:
        raise Refused(Errors.MIRROR_WITH_SCHEDULES)


def _check_name(source: StreamSource, words: _Words) -> None:
    if not source.name or not FORBIDDEN_IN_NAMES.isdisjoint(source.name):
        raise Refused(words.name)


def _check_source(
    config: StreamConfig,
    source: StreamSource,
    streams: Mapping[str, Configured],
    random: Randomness,
    words: _Words,
) -> None:
    if source.filter_subject and source.subject_transforms:
        raise Refused(words.both)
    _check_rules(source, random, words)
    if source.filter_subject and not is_valid_pattern(source.filter_subject.encode()):
        raise Refused(words.filter, err=f"invalid subject {source.filter_subject}")
    _check_name(source, words)
    if words is _SOURCE:
        _check_consumer(source, words)
    if source.domain:  # which is for clients to turn into an external API
        raise Refused(Errors.INVALID_JSON, err='json: unknown field "domain"')
    if source.opt_start_time:
        try:
            parse_time(source.opt_start_time)
        except DocumentError as error:
            raise Refused(Errors.INVALID_JSON, err=error) from error
    origin = streams.get(source.name) if source.external is None else None
    if origin is not None and 0 < config.max_msg_size < origin.config.max_msg_size:
        raise Refused(words.size)


def _check_consumer(source: StreamSource, words: _Words) -> None:
    """Refuse a consumer to copy through that can not be, or that something else contradicts."""
    consumer = source.consumer
    if consumer is None:
        return
    if (
        not consumer.name
        or not FORBIDDEN_IN_NAMES.isdisjoint(consumer.name)
        or not is_valid_subject(consumer.deliver_subject.encode())
        or source.opt_start_seq
        or source.opt_start_time
        or source.filter_subject
    ):
        raise Refused(words.consumer)


def _check_prefixes(config: StreamConfig, streams: Mapping[str, Configured]) -> None:
    """Refuse prefixes of other accounts' streams that are none, or that mean our own."""
    sources = copies(config)
    externals = [source.external for source in sources if source.external is not None]
    subjects = [
        subject
        for name in dict.fromkeys(source.name for source in sources if source.external is None)
        if name in streams
        for subject in streams[name].config.subjects
    ]
    prefixes = [*dict.fromkeys(external.deliver for external in externals if external.deliver)]
    if len(prefixes) * len(subjects) > COMPARED_MAX:
        raise invalid("too many subjects to compare with the prefixes of external sources")
    for prefix in prefixes:
        if not is_valid_subject(prefix.encode()):
            raise Refused(Errors.STREAM_EXTERNAL_DELIVER_INVALID, prefix=prefix)
        for subject in subjects:
            if overlaps(subject.encode(), f"{prefix}.{subject}".encode()):
                raise Refused(
                    Errors.STREAM_EXTERNAL_DELIVER_OVERLAP, prefix=prefix, subject=subject
                )
    for prefix in [external.api for external in externals if external.api]:
        if not is_valid_subject(prefix.encode()):
            text = (
                f'stream external api prefix "{prefix}" must be a valid subject without wildcards'
            )
            raise invalid(text)
        if overlaps(prefix.encode(), _API):
            raise Refused(Errors.STREAM_EXTERNAL_API_OVERLAP, prefix=prefix, subject=_API.decode())


def _check_rules(source: StreamSource, random: Randomness, words: _Words) -> None:
    for rule in source.subject_transforms:
        if rule.src and not is_valid_pattern(rule.src.encode()):
            raise Refused(words.filter, err=f"invalid subject {rule.src}")
        if rule.dest:
            try:
                _compile_rule(rule, random)
            except InvalidSubjectError as error:
                raise Refused(words.transform, err=error) from error
    patterns = [(rule.src or _EVERYTHING).encode() for rule in source.subject_transforms]
    tree = PatternTree()
    for pattern in patterns:
        if words is _MIRROR and tree.overlapping(pattern) is not None:
            raise Refused(words.overlap)
        tree.add(pattern)
    if len(set(patterns)) != len(patterns) or any(map(tree.containing, patterns)):
        raise Refused(words.overlap)


def _check_cycles(config: StreamConfig, streams: Mapping[str, Configured]) -> None:
    """Refuse a stream whose messages would come back to it."""
    to_visit, visited, queued = deque([config]), set(), {config.name}
    while to_visit:
        current = to_visit.popleft()
        visited.add(current.name)
        for source in copies(current):
            if source.external is not None:
                continue  # of the same name, perhaps, but another stream
            if source.name in visited:
                if current.mirror is not None or _meets(current.subjects, source.filter_subject):
                    raise invalid("detected cycle")
            elif source.name in streams and source.name not in queued:
                queued.add(source.name)  # once: by many ways it would be looked at for each of them
                to_visit.append(streams[source.name].config)


def _meets(subjects: Iterable[str], filter: str) -> bool:
    pattern = filter.encode()
    return not filter or any(overlaps(subject.encode(), pattern) for subject in subjects)


def short_hash(text: str) -> str:
    """Eight letters and digits that stand for a text, as the public server makes them."""
    digest = sha256(text.encode()).digest()[:8]
    return bytes(_DIGITS[byte % len(_DIGITS)] for byte in digest).decode()
