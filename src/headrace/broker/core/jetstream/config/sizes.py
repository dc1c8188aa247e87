"""How much a configuration or a request may list, and which numbers a server can count with.

What is longer would hold the event loop too long. The public server has no such limits; where it has an
error for the kind of thing, that one is given. Numbers have 64 bits, durations at most 292 years.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec

from .....api.base import Document, DocumentError
from .....api.consumers import ConsumerConfig
from .....api.errors import Errors
from .....api.streams import StreamConfig, SubjectTransformConfig
from .....limits import (
    API_REQUEST_BYTES_MAX,
    API_REQUEST_VALUES_MAX,
    BACKOFF_STEPS_MAX,
    METADATA_ENTRIES_MAX,
    PLACEMENT_TAGS_MAX,
    RULE_TOKENS_MAX,
    RULES_TOKENS_MAX,
    SUBJECT_TOKENS_MAX,
    TEXT_CHARS_MAX,
)
from .....pattern_tree import TooManyPatternsError
from .options import Refused, invalid

_INT_MAX: Final = 2**63 - 1
_SECONDS_MAX: Final = _INT_MAX / 1e9
_DIGITS_MAX: Final = 18
DURATION_NS_MAX: Final = 10 * 365 * 86_400 * 1_000_000_000
"""Ten years: a longer delay is cut to this."""

_NEVER_COUNT: Final = frozenset({str, bool, bytes, type(None), Ellipsis})

_Ranged = TypeVar("_Ranged", bound=Document)
D = TypeVar("D", bound=Document)


def check_ranges(document: _Ranged) -> _Ranged:
    """The document, if its numbers are within range. Raises DocumentError naming the field."""
    for name, wire_name in _names(type(document)):
        value = getattr(document, name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Document):
                check_ranges(item)
            elif isinstance(item, float):
                if abs(item) > _SECONDS_MAX:
                    raise DocumentError(f"json: duration out of range in {wire_name}")
            elif isinstance(item, int) and abs(item) > _INT_MAX:
                raise DocumentError(f"json: number out of range in {wire_name}")
    return document


@cache  # msgspec evaluates every annotation anew each time it is asked for the fields
def _names(kind: type[Document]) -> tuple[tuple[str, str], ...]:
    """Of each field that may hold a number: its name, and its name on the wire."""
    fields = msgspec.structs.fields(kind)
    return tuple((field.name, field.encode_name) for field in fields if _may_count(field.type))


def _may_count(kind: Any) -> bool:
    """Whether a value of this type is, or holds, a number that is not a truth."""
    parts = get_args(kind)
    if get_origin(kind) is Literal:
        return False
    return any(map(_may_count, parts)) if parts else kind not in _NEVER_COUNT


def read_number(text: bytes) -> int | None:
    """A decimal number of reasonable length without sign, or None."""
    return int(text) if text.isdigit() and len(text) <= _DIGITS_MAX else None


def check_request_size(payload: bytes) -> None:
    """Raise DocumentError for a request that takes too long to read."""
    if len(payload) > API_REQUEST_BYTES_MAX:
        raise DocumentError(
            f"json: request of {len(payload)} bytes; accepted are {API_REQUEST_BYTES_MAX}"
        )
    if len(payload) > TEXT_CHARS_MAX and _values_at_most(payload) > API_REQUEST_VALUES_MAX:
        raise DocumentError(f"json: too many values; accepted are {API_REQUEST_VALUES_MAX}")


def _values_at_most(payload: bytes) -> int:
    """How many values JSON has, no more: each but the first is behind a comma, or the first of a list or an
    object. Within texts these signs are counted, too."""
    return payload.count(b",") + payload.count(b"[") + payload.count(b"{") + 1


def with_checked_texts(document: D, payload: bytes) -> D:
    """The document read from ``payload``. Raises DocumentError for a text that is too long to look at."""
    if len(payload) > TEXT_CHARS_MAX and _may_have_long_text(payload):
        _check_texts(document)
    return document


def _may_have_long_text(payload: bytes) -> bool:
    """False only if no text is too long: told at once where no quotation mark is within a text."""
    return b'\\"' in payload or max(map(len, payload.split(b'"'))) > TEXT_CHARS_MAX


def _check_texts(document: Document) -> None:
    """At any depth, but not in metadata, which has a cap of its own."""
    kind = type(document)
    for name, wire_name in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True):
        value = getattr(document, name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Document):
                _check_texts(item)
            elif isinstance(item, str) and len(item) > TEXT_CHARS_MAX:
                raise DocumentError(
                    f"json: text of {len(item)} characters in {wire_name};"
                    f" accepted are {TEXT_CHARS_MAX}"
                )


def check_entries(metadata: Mapping[str, str]) -> None:
    """Refuse metadata of too many entries."""
    if len(metadata) > METADATA_ENTRIES_MAX:
        count = len(metadata)
        raise invalid(f"too many metadata entries: {count}; accepted are {METADATA_ENTRIES_MAX}")


def check_backoff(config: ConsumerConfig) -> None:
    """Refuse a backoff of too many steps."""
    if len(config.backoff) > BACKOFF_STEPS_MAX:
        text = f"too many backoff steps: {len(config.backoff)}; accepted are {BACKOFF_STEPS_MAX}"
        raise Refused(Errors.CONSUMER_CREATE, err=text)


def check_tokens(patterns: Iterable[str]) -> None:
    """Raise TooManyPatternsError for subjects that have too many tokens together."""
    count = sum(pattern.count(".") + 1 for pattern in patterns)
    if count > SUBJECT_TOKENS_MAX:
        raise TooManyPatternsError(
            f"too many tokens in all subjects: {count}; accepted are {SUBJECT_TOKENS_MAX}"
        )


def check_lists(config: StreamConfig) -> None:
    """Refuse a stream whose tags, subjects or transforms are too much to look at."""
    tags = config.placement.tags if config.placement is not None else ()
    if len(tags) > PLACEMENT_TAGS_MAX:
        raise invalid(f"too many placement tags: {len(tags)}; accepted are {PLACEMENT_TAGS_MAX}")
    check_tokens(config.subjects)
    if config.subject_transform is not None:
        _check_rule(config.subject_transform.src, config.subject_transform.dest)
    if config.republish is not None:
        _check_rule(config.republish.src, config.republish.dest)
    sources = config.sources if config.mirror is None else (config.mirror, *config.sources)
    _check_rules([rule for source in sources for rule in source.subject_transforms])


def _check_rules(rules: list[SubjectTransformConfig]) -> None:
    count = sum(_check_rule(rule.src, rule.dest) for rule in rules)
    if count > RULES_TOKENS_MAX:
        text = f"too many tokens in subject transforms of sources: {count}"
        raise invalid(f"{text}; accepted are {RULES_TOKENS_MAX}")


def _check_rule(src: str, dest: str) -> int:
    """How many tokens a transform has; an argument of a function counts as one."""
    counts = [side.count(".") + side.count(",") + side.count("{{") + 1 for side in (src, dest)]
    if max(counts) > RULE_TOKENS_MAX:
        text = f"too many tokens in a subject transform: {max(counts)}"
        raise invalid(f"{text}; accepted are {RULE_TOKENS_MAX}")
    return sum(counts)
