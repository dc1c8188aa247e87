"""Subjects and patterns: validity, matching, overlap, and the partition hash.

A subject is dot-separated non-empty tokens without whitespace or control characters. A pattern may also
use ``*`` as a whole token (exactly one token) and ``>`` as the last one (one or more). A ``*`` or ``>``
inside a longer token is an ordinary character, as in NATS.

Everything works on ``bytes``. The matching functions expect valid arguments; call ``check_subject`` or
``check_pattern`` once where input arrives.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeAlias, final

from .errors import InvalidSubjectError

__all__ = [
    "SubjectFilter",
    "are_below",
    "are_valid_patterns",
    "carried",
    "check_pattern",
    "check_subject",
    "is_carried",
    "is_literal",
    "is_subset",
    "is_valid_pattern",
    "is_valid_subject",
    "matches",
    "overlaps",
]

_ONE: Final = b"*"
_REST: Final = b">"

_END: Final = b""  # in a tree: a pattern ends here; no token is empty
_TRIED_IN_TURN_MAX: Final = 8  # more patterns than this are cheaper to find in a tree

_TOKEN: Final = rb"(?![*>](?:\.|\Z))[^\x00-\x20\x7f.]+"
_SUBJECT: Final = re.compile(rb"%b(?:\.%b)*" % (_TOKEN, _TOKEN))
_PATTERN_TOKEN: Final = rb"(?!>(?:\.|\Z))[^\x00-\x20\x7f.]+"
_PATTERN: Final = re.compile(rb"(?:%b\.)*(?:%b|>)" % (_PATTERN_TOKEN, _PATTERN_TOKEN))
# The same for several, with spaces between them.
_AMONG_TOKEN: Final = rb"(?!>(?:[. ]|\Z))[^\x00-\x20\x7f.]+"
_AMONG: Final = rb"(?:%b\.)*+(?:%b|>)" % (_AMONG_TOKEN, _AMONG_TOKEN)
_PATTERNS: Final = re.compile(rb"%b(?: %b)*+" % (_AMONG, _AMONG))
_FORBIDDEN: Final = re.compile(rb"[\x00-\x20\x7f]")
_CARRIED_TOKEN: Final = rb"(?![*>](?:\.|\Z))[^\t\n\r .]+"
_CARRIED: Final = re.compile(rb"%b(?:\.%b)*" % (_CARRIED_TOKEN, _CARRIED_TOKEN))
_ENDS_A_WORD: Final = re.compile(rb"[\t\n\r ]")

_Tree: TypeAlias = "dict[bytes, _Tree]"


def is_valid_subject(subject: bytes) -> bool:
    """Whether a message may be published to ``subject``: valid and without wildcards."""
    return _SUBJECT.fullmatch(subject) is not None and _is_text(subject)


def is_valid_pattern(pattern: bytes) -> bool:
    """Whether ``pattern`` may be subscribed to: a subject, possibly with wildcards."""
    return _PATTERN.fullmatch(pattern) is not None and _is_text(pattern)


def are_valid_patterns(patterns: Sequence[bytes]) -> bool:
    """``is_valid_pattern`` of all of these, at least one, in a fraction of the time."""
    together = b" ".join(patterns)
    return (
        together.count(b" ") == len(patterns) - 1
        and _PATTERNS.fullmatch(together) is not None
        and _is_text(together)
    )


def are_below(head: bytes, subjects: Sequence[bytes], *, deep: bool = False) -> bool:
    """Whether each of these is a head, a dot and one more token; ``deep``: or more than one.

    They are looked at together, as subjects that come together often begin alike. None has a line feed in it.
    """
    start = b"\n%b." % head
    if not subjects[-1].startswith(start[1:]):
        return False
    text = b"\n%b\n" % b"\n".join(subjects)
    if text.count(start) != len(subjects):
        return False
    # As many dots as in all the heads: then each has one token more, or none.
    return deep or (
        text.count(b".") == len(subjects) * start.count(b".") and start + b"\n" not in text
    )


def is_carried(subject: bytes) -> bool:
    """Whether a control line can carry ``subject`` as one word that names one place: what of a message
    that did not come through the parser has to be so, before it is stored or sent.

    Less than ``is_valid_subject`` asks: publishers have always been let have other bytes in a token.
    """
    return _CARRIED.fullmatch(subject) is not None


def carried(subject: bytes) -> bytes:
    """``subject`` with ``_`` in place of each byte that would end its word in a control line."""
    return _ENDS_A_WORD.sub(b"_", subject) if _ENDS_A_WORD.search(subject) else subject


def is_literal(pattern: bytes) -> bool:
    """Whether a valid pattern has no wildcard, and so matches only itself."""
    return _SUBJECT.fullmatch(pattern) is not None


def check_subject(subject: bytes) -> bytes:
    """Return ``subject``. Raises InvalidSubjectError that says what is wrong and where."""
    if not is_valid_subject(subject):
        raise InvalidSubjectError(_complaint("subject", subject, wildcards=False))
    return subject


def check_pattern(pattern: bytes) -> bytes:
    """Return ``pattern``. Raises InvalidSubjectError that says what is wrong and where."""
    if not is_valid_pattern(pattern):
        raise InvalidSubjectError(_complaint("subject pattern", pattern, wildcards=True))
    return pattern


def matches(pattern: bytes, subject: bytes) -> bool:
    """Whether ``subject`` (no wildcards) matches ``pattern``."""
    if pattern in (subject, _REST):
        return True
    return is_subset(subject, pattern)


def overlaps(a: bytes, b: bytes) -> bool:
    """Whether some subject matches both patterns."""
    tokens_a, tokens_b = a.split(b"."), b.split(b".")
    for one, other in zip(tokens_a, tokens_b, strict=False):
        if _REST in (one, other):
            return True
        if one != other and one != _ONE and other != _ONE:
            return False
    return len(tokens_a) == len(tokens_b)


def is_subset(a: bytes, b: bytes) -> bool:
    """Whether every subject matching pattern ``a`` matches pattern ``b`` too."""
    tokens_a, tokens_b = a.split(b"."), b.split(b".")
    for one, other in zip(tokens_a, tokens_b, strict=False):
        if other == _REST:
            return True
        if one == _REST or (one != other and other != _ONE):
            return False
    return len(tokens_a) == len(tokens_b)


@final
class SubjectFilter:
    """An immutable, hashable set of patterns, compiled for frequent calls of ``matches``.

    Two filters are equal if they have the same patterns, in any order. Raises InvalidSubjectError for a
    malformed pattern, or if there is none; use ``>`` to match everything.
    """

    __slots__ = ("literal", "matches", "patterns")

    patterns: tuple[bytes, ...]
    """The patterns as given, without duplicates."""

    literal: bytes | None
    """The subject, if the filter is one pattern without wildcards."""

    matches: Callable[[bytes], bool]
    """``matches(subject) -> bool``: whether any of the patterns matches."""

    def __init__(self, patterns: Iterable[bytes]) -> None:
        unique = tuple(dict.fromkeys(check_pattern(pattern) for pattern in patterns))
        if not unique:
            raise InvalidSubjectError("a subject filter needs at least one pattern, as `>`")
        sole = unique[0] if len(unique) == 1 and is_literal(unique[0]) else None
        object.__setattr__(self, "patterns", unique)
        object.__setattr__(self, "literal", sole)
        object.__setattr__(self, "matches", _compile(unique))

    @classmethod
    def of_stored(cls, subject: bytes) -> SubjectFilter:
        """The filter of one stored subject, which is not checked to be UTF-8."""
        if is_valid_pattern(subject):
            return cls((subject,))
        filter = object.__new__(cls)
        object.__setattr__(filter, "patterns", (subject,))
        object.__setattr__(filter, "literal", subject)
        object.__setattr__(filter, "matches", subject.__eq__)
        return filter

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"SubjectFilter is immutable: cannot set {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"SubjectFilter is immutable: cannot delete {name!r}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SubjectFilter):
            return NotImplemented
        return self.patterns == other.patterns or set(self.patterns) == set(other.patterns)

    def __hash__(self) -> int:
        return hash(frozenset(self.patterns))

    def __repr__(self) -> str:
        return f"SubjectFilter({list(self.patterns)!r})"

    def __reduce__(self) -> tuple[type[SubjectFilter], tuple[tuple[bytes, ...]]]:
        return SubjectFilter, (self.patterns,)


def _is_text(subject: bytes) -> bool:
    """Whether ``subject`` is UTF-8, so that JSON documents can carry it."""
    if subject.isascii():
        return True
    try:
        subject.decode()
    except UnicodeDecodeError:
        return False
    return True


def _complaint(what: str, value: bytes, *, wildcards: bool) -> str:
    """One sentence about the first error in ``value``."""
    accepted = (
        "accepted are dot-separated non-empty tokens without whitespace or control characters, "
        + ("`*` as a whole token, `>` as the last one" if wildcards else "and no wildcards")
    )
    shown = repr(value.decode(errors="backslashreplace"))
    if not value:
        return f"empty {what}: {accepted}"
    if not _is_text(value):
        return f"{what} {shown} is not valid UTF-8: {accepted}"
    forbidden = _FORBIDDEN.search(value)
    if forbidden is not None:
        character = forbidden.group().decode()
        return f"{what} {shown} has {character!r} at byte {forbidden.start()}: {accepted}"
    tokens = value.split(b".")
    for number, token in enumerate(tokens, 1):
        if not token:
            return f"{what} {shown} has an empty token at position {number}: {accepted}"
        if not wildcards and token in (_ONE, _REST):
            return f"{what} {shown} has the wildcard {token.decode()!r} at position {number}: {accepted}"
        if token == _REST and number < len(tokens):
            return f"{what} {shown} has '>' at position {number}, not at the end: {accepted}"
    raise AssertionError("a valid value was complained about")


def _compile(patterns: tuple[bytes, ...]) -> Callable[[bytes], bool]:
    """The fastest matcher for these patterns: one comparison, one prefix, or a dispatch."""
    if _REST in patterns:
        return lambda subject: True
    if len(patterns) == 1:
        return _compile_group(patterns)
    literals = frozenset(pattern for pattern in patterns if is_literal(pattern))
    by_first: dict[bytes, list[bytes]] = {}
    for pattern in patterns:
        if pattern not in literals:
            by_first.setdefault(pattern.partition(b".")[0], []).append(pattern)
    if not by_first:
        return literals.__contains__
    anywhere = by_first.pop(_ONE, None)
    groups: dict[bytes, Callable[[bytes], bool]] = {}  # those that were asked for so far
    otherwise = _compile_group(tuple(anywhere)) if anywhere else None

    def dispatch(subject: bytes) -> bool:
        if subject in literals:
            return True
        first = subject.partition(b".")[0]
        group = groups.get(first)
        if group is None and first in by_first:
            group = groups[first] = _compile_group(tuple(by_first[first]))
        if group is not None and group(subject):
            return True
        return otherwise is not None and otherwise(subject)

    return dispatch


def _compile_group(patterns: tuple[bytes, ...]) -> Callable[[bytes], bool]:
    """A matcher for patterns that the first token does not tell apart."""
    if len(patterns) > _TRIED_IN_TURN_MAX:
        return _compile_tree(patterns)
    if len(patterns) == 1 and is_literal(patterns[0]):
        return partial(operator.eq, patterns[0])
    prefixes = tuple(p[:-1] for p in patterns if p.endswith(b".>") and is_literal(p[:-2]))
    if len(prefixes) == len(patterns):
        prefix = prefixes[0] if len(prefixes) == 1 else prefixes
        return lambda subject: subject.startswith(prefix)
    # Compiled when it is first asked: that takes 0.1 ms, and a request may name thousands of patterns.
    fullmatch: Callable[[bytes], object] | None = None

    def match(subject: bytes) -> bool:
        nonlocal fullmatch
        if fullmatch is None:
            fullmatch = re.compile(b"|".join(map(_regex, patterns)), re.DOTALL).fullmatch
        return fullmatch(subject) is not None

    return match


def _compile_tree(patterns: tuple[bytes, ...]) -> Callable[[bytes], bool]:
    """A matcher whose time does not grow with the number of patterns: a tree of tokens."""
    root: _Tree = {}
    for pattern in patterns:
        node = root
        for token in pattern.split(b"."):
            node = node.setdefault(token, {})
        node[_END] = {}

    def walk(subject: bytes) -> bool:
        nodes = [root]
        for token in subject.split(b"."):
            reached = []
            for node in nodes:
                if _REST in node:
                    return True
                reached += [node[key] for key in (token, _ONE) if key in node]
            nodes = reached
        return any(_END in node for node in nodes)

    return walk


def _regex(pattern: bytes) -> bytes:
    """A regular expression for one pattern."""
    tokens = pattern.split(b".")
    special = {_ONE: rb"[^.]+", _REST: rb".+"}
    return rb"\.".join(special.get(token) or re.escape(token) for token in tokens)
