"""A channel that lives in a stream: what it is called there, and what such a channel cannot do. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from ..errors import InvalidSubjectError
from ..subjects import SubjectFilter
from . import limits
from .errors import JobsError, bad_request
from .matching.filters import checked_subject

__all__ = ["ORDERING_KEY", "ChannelStream", "refused", "stream_of"]

ORDERING_KEY: Final = "X-Broker-Ordering-Key"
"""The header of a stream's message that has its ordering key."""

_FORBIDDEN: Final = frozenset(" \t\r\n\0.*>/\\")


class ChannelStream(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a channel lives: the stream ``name``.

    ``subject`` is what is published over HTTP to; empty: each publish names one (``X-Broker-Subject``).
    ``filter`` are patterns of the subjects that consumers get; empty: the whole stream.
    """

    name: str
    subject: str = ""
    filter: tuple[str, ...] = ()

    def check(self) -> None:
        """Reject what cannot be: 400, with the field."""
        if not self.name or len(self.name) > limits.STREAM_NAME_CHARS_MAX:
            raise _invalid(f"a name has 1 to {limits.STREAM_NAME_CHARS_MAX} characters", "name")
        if not _FORBIDDEN.isdisjoint(self.name) or not self.name.isprintable():
            raise _invalid("a stream's name has no spaces, dots, wildcards or slashes", "name")
        if self.subject:
            checked_subject(self.subject, "stream.subject")
        if len(self.filter) > limits.FILTER_PATTERNS_MAX:
            raise _invalid(f"at most {limits.FILTER_PATTERNS_MAX} patterns", "filter")
        if any(len(pattern) > limits.SUBJECT_CHARS_MAX for pattern in self.filter):
            raise _invalid(f"at most {limits.SUBJECT_CHARS_MAX} characters each", "filter")
        try:
            patterns = [SubjectFilter((pattern.encode(),)) for pattern in self.filter]
        except (InvalidSubjectError, UnicodeEncodeError) as error:
            raise _invalid(str(error), "filter") from None
        if self.subject and patterns and not self.takes(self.subject):
            raise _invalid("no pattern of `filter` fits it: no consumer would get it", "subject")

    def takes(self, subject: str) -> bool:
        """Whether consumers get what is published to ``subject``."""
        return not self.filter or SubjectFilter(
            pattern.encode() for pattern in self.filter
        ).matches(subject.encode())


@lru_cache(1024)
def stream_of(text: str | None) -> ChannelStream | None:
    """What a channel's column says; None: it lives in the database."""
    return None if text is None else msgspec.json.decode(text, type=ChannelStream)


def refused(what: str, field: str) -> JobsError:
    """400: ``what`` is for channels of the database."""
    return bad_request("stream_channel", f"the channel lives in a stream: {what}", field)


def _invalid(message: str, field: str) -> JobsError:
    return bad_request("invalid_stream", message, f"stream.{field}")
