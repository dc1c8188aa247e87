"""Filters by which a consumer gets messages of its channel: by subject, headers, payload. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ...errors import InvalidSubjectError
from ...subjects import SubjectFilter, check_subject
from .. import limits
from ..errors import JobsError, bad_request
from .patterns import effort_of, fits_one, fits_parts
from .payloads import check_paths, fitting_paths

__all__ = ["SUBJECT", "Effort", "MessageFilter", "Takes", "checked_subject", "compiled", "fits"]

SUBJECT: Final = "X-Headrace-Subject"
"""The stored header that has a message's subject."""

_ANY: Final = "*"
_EFFORT_CHARS: Final = 64  # of patterns, looked for in a value, take as long as a job that is made
_PART_BYTES: Final = 16 * 1024


class Effort(NamedTuple):
    """Cost of asking whether a message fits, in jobs that could be made meanwhile.

    ``payload``: for each part of it that is looked into.
    """

    headers: int
    payload: int

    def of(self, size: int) -> int:
        """Return the cost for a message whose payload has this size."""
        return self.headers + self.payload * (1 + size // _PART_BYTES)


class MessageFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Wishes of a consumer of its channel; empty: everything.

    ``subjects`` are patterns as of NATS (``*`` is one token, ``>`` the rest); one that fits is enough, and a
    message without a subject fits none. ``headers`` has, for each name, patterns of its value (``*`` is any
    text, also none); of each name one has to fit, and a message without that header does not. ``payload`` has
    the same for each path into its JSON, such as ``$.order.id``.
    """

    subjects: tuple[str, ...] = ()
    headers: dict[str, tuple[str, ...]] = {}
    payload: dict[str, tuple[str, ...]] = {}

    @property
    def takes_all(self) -> bool:
        """Whether every message fits."""
        return not self.subjects and not self.headers and not self.payload

    @property
    def effort(self) -> Effort:
        """Cost of asking it."""
        headers, payload = (
            sum(map(effort_of, of_names.values())) // _EFFORT_CHARS
            for of_names in (self.headers, self.payload)
        )
        return Effort(1 + headers, 1 + payload if self.payload else 0)

    def check(self) -> None:
        """Reject an invalid filter: 400, with the field."""
        _check_list(self.subjects, limits.FILTER_PATTERNS_MAX, "filter.subjects")
        try:
            for pattern in self.subjects:
                SubjectFilter((pattern.encode(),))
        except (InvalidSubjectError, UnicodeEncodeError) as error:
            raise _invalid(str(error), "filter.subjects") from None
        if len(self.headers) > limits.FILTER_HEADERS_MAX:
            raise _invalid(f"at most {limits.FILTER_HEADERS_MAX} headers", "filter.headers")
        names = [name.lower() for name in self.headers]
        if len(set(names)) < len(names):
            raise _invalid("a header is named once, in whichever case", "filter.headers")
        for name, patterns in self.headers.items():
            field = f"filter.headers.{name}"
            if not name.strip() or len(name) > limits.FILTER_PATTERN_CHARS_MAX:
                raise _invalid("a header has a name", "filter.headers")
            if not patterns:
                raise _invalid("one or more patterns are accepted; `*` is any value", field)
            _check_list(patterns, limits.FILTER_PATTERNS_MAX, field)
        check_paths(self.payload, "filter.payload")
        count = sum(map(len, (self.subjects, *self.headers.values(), *self.payload.values())))
        if count > limits.FILTER_PATTERNS_TOTAL_MAX:
            most = limits.FILTER_PATTERNS_TOTAL_MAX
            raise _invalid(f"at most {most} patterns in all; these are {count}", "filter")


def checked_subject(subject: str, field: str) -> str:
    """``subject``, which a message may have; 400 if it may not."""
    try:
        check_subject(subject.encode())
    except (InvalidSubjectError, UnicodeEncodeError) as error:
        raise bad_request("invalid_subject", str(error), field) from None
    if len(subject) > limits.SUBJECT_CHARS_MAX:
        raise bad_request(
            "invalid_subject", f"at most {limits.SUBJECT_CHARS_MAX} characters are accepted", field
        )
    return subject


Takes = Callable[[Mapping[str, str], Callable[[], Any]], bool]
"""Tells of a message whether it fits: by its headers (their names in lower case), and by what returns the
payload's JSON (or ``MISSING``), which is asked if it matters.
"""


def compiled(wanted: MessageFilter) -> Takes:
    """Tells whether a message fits."""
    by_subject = (
        SubjectFilter(pattern.encode() for pattern in wanted.subjects).matches
        if wanted.subjects
        else None
    )
    by_header = [(name.lower(), fits_one(patterns)) for name, patterns in wanted.headers.items()]

    by_payload = fitting_paths(wanted.payload) if wanted.payload else None

    def takes(headers: Mapping[str, str], document: Callable[[], Any]) -> bool:
        if by_subject is not None:
            subject = headers.get(SUBJECT.lower())
            if subject is None or not by_subject(subject.encode()):
                return False
        for name, fits in by_header:
            value = headers.get(name)
            if value is None or not fits(value):
                return False
        return by_payload is None or by_payload(document())

    return takes


def fits(pattern: str, value: str) -> bool:
    """Whether ``value`` is like ``pattern``, in which ``*`` is any text."""
    return fits_parts(pattern.split(_ANY), value)


def _check_list(patterns: Sequence[str], most: int, field: str) -> None:
    if len(patterns) > most:
        raise _invalid(f"at most {most} patterns", field)
    for pattern in patterns:
        if len(pattern) > limits.FILTER_PATTERN_CHARS_MAX:
            raise _invalid(
                f"a pattern has at most {limits.FILTER_PATTERN_CHARS_MAX} characters", field
            )


def _invalid(message: str, field: str) -> JobsError:
    return bad_request("invalid_filter", message, field)
