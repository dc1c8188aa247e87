"""What a query's filters say about the range and the subjects to read. Pure.

Spark evaluates every filter again. So a range may be too large, but it must not leave out a row: where a
filter says something that is not understood here, nothing is concluded from it. Servers' clocks may step
back, so times are taken with some slack.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ..subjects import SubjectFilter, is_valid_subject
from .options import SourceOptions

SLACK: Final = timedelta(minutes=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOWER: Final = ("GreaterThan", "GreaterThanOrEqual")
_UPPER: Final = ("LessThan", "LessThanOrEqual")
_EQUAL: Final = ("EqualTo", "EqualNullSafe")


def prune(options: SourceOptions, filters: Iterable[object]) -> SourceOptions:
    """The options, narrowed to what rows that pass all the filters can be in.

    A filter is one of PySpark's; which one is its class's name.
    """
    for each in filters:
        kind, column = type(each).__name__, tuple(getattr(each, "attribute", ()))
        value = getattr(each, "value", None)
        if len(column) != 1 or value is None:
            continue
        name = column[0].lower()
        if name == "subject":
            options = _by_subject(options, kind, value)
        elif name == "stream":
            options = _by_stream(options, kind, value)
        elif options.last_per_subject:
            continue  # the latest message of a subject is not the latest of a range
        elif name == "sequence":
            options = _by_sequence(options, kind, value)
        elif name == "timestamp":
            options = _by_time(options, kind, value)
    return options


def _by_sequence(options: SourceOptions, kind: str, value: Any) -> SourceOptions:
    values = _values(kind, value, int)
    if not values:
        return options
    low, high = min(values), max(values)
    bounds = options.bounds
    if kind not in _UPPER:
        first = low + 1 if kind == "GreaterThan" else low
        bounds = bounds._replace(first=max(bounds.first, first))
    if kind not in _LOWER:
        last = max(0, high - 1 if kind == "LessThan" else high)
        bounds = bounds._replace(last=last if bounds.last is None else min(bounds.last, last))
    return replace(options, bounds=bounds)


def _by_time(options: SourceOptions, kind: str, value: Any) -> SourceOptions:
    values = [each for each in _values(kind, value, datetime) if each.tzinfo is not None]
    if not values or (kind == "In" and len(values) != len(value)):
        return options
    bounds = options.bounds
    if kind not in _UPPER:
        since = _ns(min(values) - SLACK)
        bounds = bounds._replace(since_ns=max(bounds.since_ns, since, 0))
    if kind not in _LOWER:
        until = max(1, _ns(max(values) + SLACK))
        bounds = bounds._replace(
            until_ns=until if not bounds.until_ns else min(bounds.until_ns, until)
        )
    return replace(options, bounds=bounds)


def _by_subject(options: SourceOptions, kind: str, value: Any) -> SourceOptions:
    if kind == "StringStartsWith":
        whole_tokens = str(value).rpartition(".")[0]
        if options.subjects or not is_valid_subject(whole_tokens.encode()):
            return options
        return replace(options, subjects=(f"{whole_tokens}.>",))
    wanted = _values(kind, value, str)
    if kind in (*_LOWER, *_UPPER) or not wanted:
        return options
    if not all(is_valid_subject(each.encode()) for each in wanted):
        return options
    if options.subjects:
        matches = SubjectFilter(each.encode() for each in options.subjects).matches
        wanted = [each for each in wanted if matches(each.encode())]
    if not wanted:
        return replace(options, bounds=options.bounds._replace(last=0))
    return replace(options, subjects=tuple(dict.fromkeys(wanted)))


def _by_stream(options: SourceOptions, kind: str, value: Any) -> SourceOptions:
    wanted = _values(kind, value, str)
    if kind in (*_LOWER, *_UPPER) or not wanted:
        return options
    kept = tuple(each for each in options.ranges if each.stream in wanted)
    if not kept:
        return replace(options, bounds=options.bounds._replace(last=0))
    return replace(options, ranges=kept)


def _values(kind: str, value: Any, of: type) -> list[Any]:
    """The values of a comparison or of an IN; none if it is another filter, or they are something else."""
    if kind == "In":
        values: Sequence[Any] = [each for each in value if each is not None]
    elif kind in (*_EQUAL, *_LOWER, *_UPPER):
        values = [value]
    else:
        return []
    fits = all(isinstance(each, of) and not isinstance(each, bool) for each in values)
    return list(values) if fits else []


def _ns(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
