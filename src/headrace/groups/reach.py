"""Which messages of a stream a group can ever read, as far as the configurations say. Pure.

What is said is certain: where the subjects of what comes are not known (a mirror, sources, a publisher that
numbers subjects itself) nothing is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ..api.streams import StreamConfig, SubjectTransformConfig
from ..subjects import is_subset, matches, overlaps
from .record.assignment import destination
from .record.names import split_subject
from .record.records import ElasticGroup, StaticGroup

_PARTITION: Final = re.compile(r"\{\{\s*partition\s*\(\s*(\d+)\s*[,)].*\}\}", re.IGNORECASE)
_ONE_TOKEN: Final = re.compile(
    r"\$\d+|\{\{\s*(?:wildcard|partition|random|left|right)\s*\(.*\)\s*\}\}", re.IGNORECASE
)


class Stored(NamedTuple):
    """Subjects under which a stream stores messages.

    Attributes:
        pattern: the subjects; where a transform's function stands, anything.
        partitions: into how many partitions the first token numbers; 0: it is no such number.
    """

    pattern: str
    partitions: int = 0


class Trouble(NamedTuple):
    """Why a group does not get messages that its stream has, or will have.

    Attributes:
        kind: a word for programs: ``unnumbered``, ``beyond``, ``outside``, ``unmatched``, ``nothing-yet``,
            ``no-stream``, ``no-queue``, ``other-queue``, ``closed-queue``, ``copy-fails``, ``stranger``,
            ``interest``, ``passed-over``; of members alone ``change-left``.
        text: what is the case.
        mend: what mends it, a command if there is one.
        is_certain: whether messages surely pass by; else it is worth knowing, and may be meant.
    """

    kind: str
    text: str
    mend: str
    is_certain: bool = True


def stored_by(config: StreamConfig) -> tuple[Stored, ...] | None:
    """Under which subjects a stream stores what is published to it; None if that is not known."""
    if config.mirror is not None or config.sources:
        return None
    found: list[Stored] = []
    transform = config.subject_transform
    for subject in config.subjects or (config.name,):
        source = (transform.src or ">") if transform is not None and transform.dest else ""
        if transform is None or not source or not _overlap(source, subject):
            found.append(Stored(subject))
            continue
        found.append(_transformed(transform))
        if not is_subset(subject.encode(), source.encode()):
            found.append(Stored(subject))
    return tuple(dict.fromkeys(found))


def filters_of(group: StaticGroup | ElasticGroup) -> tuple[str, ...]:
    """What a group takes of its stream, as patterns without the partition."""
    if isinstance(group, ElasticGroup):
        return tuple(each.filter for each in group.partitioning_filters or ()) or (">",)
    return tuple(each.partition(".")[2] for each in group.filter_subjects((0,)))


def is_read(group: StaticGroup | ElasticGroup, subject: str) -> bool:
    """Whether a message of this subject, in the stream that is consumed, is in one of the partitions."""
    try:
        number, rest = split_subject(subject)
    except ValueError:
        return False
    return number < group.max_members and _matches_any(filters_of(group), rest)


def is_meant(group: StaticGroup, subject: str) -> bool:
    """Whether a message of this subject is the group's, but for its number."""
    try:
        _, rest = split_subject(subject)
    except ValueError:
        rest = subject
    return _matches_any(filters_of(group), rest)


def outside(group: StaticGroup | ElasticGroup, counts: Mapping[str, int]) -> dict[str, int]:
    """Of the subjects in the stream that is consumed those that are the group's and in no partition."""
    return {
        subject: messages
        for subject, messages in counts.items()
        if not is_read(group, subject)
        and (isinstance(group, ElasticGroup) or is_meant(group, subject))
    }


def by_configuration(
    group: StaticGroup | ElasticGroup, origin: StreamConfig
) -> tuple[Trouble, ...]:
    """What is certain of new messages of the group's stream."""
    stored = stored_by(origin)
    if stored is None:
        return ()
    if isinstance(group, StaticGroup):
        return _of_static(group, origin, stored)
    dead = [
        each for each in filters_of(group) if not any(_overlap(each, s.pattern) for s in stored)
    ]
    if not dead:
        return ()
    plural = "s" * (len(dead) != 1)
    text = (
        f"its filter{plural} {_listed(dead)} match{'' if plural else 'es'} none of the subjects that stream "
        f"{group.stream!r} stores: {_listed(s.pattern for s in stored)}"
    )
    mend = f"headrace group elastic change {group.stream} {group.name} --filter 'PATTERN:INDEXES'"
    return (Trouble("unmatched", text, mend),)


def _of_static(
    group: StaticGroup, origin: StreamConfig, stored: tuple[Stored, ...]
) -> tuple[Trouble, ...]:
    filters, most = filters_of(group), group.max_members
    what = _listed(each.pattern for each in stored)
    mend = f"headrace stream edit {group.stream} --transform '{_renumbered(origin, most)}'"
    if not any(_is_within_reach(each, filters, most) for each in stored):
        if any(each.partitions or _number(each.pattern) is not None for each in stored):
            text = (
                f"it reads {_listed(filters)} behind the partition's number, and stream {group.stream!r} "
                f"stores {what}"
            )
            other = f"headrace group static create balanced {group.stream} NAME {most} … --filter PATTERN"
            return (Trouble("unmatched", text, other),)
        why = "no subject transform puts one there"
        if origin.subject_transform is not None:
            why = f"its transform makes {origin.subject_transform.dest!r} of them"
        text = f"stream {group.stream!r} stores {what}, which begin with no partition number: {why}"
        return (Trouble("unnumbered", text, mend),)
    beyond = [
        each
        for each in stored
        if each.partitions > most and _meets(each.pattern.partition(".")[2], filters)
    ]
    if not beyond:
        return ()
    count = max(each.partitions for each in beyond)
    text = (
        f"stream {group.stream!r} numbers {count} partitions and the group has {most}: what comes in "
        f"{_span(most, count)} is handed to nobody"
    )
    wider = f"headrace group static create balanced {group.stream} NAME {count} …"
    return (Trouble("beyond", text, f"{wider}    or: {mend}"),)


def _is_within_reach(stored: Stored, filters: Iterable[str], most: int) -> bool:
    head, dot, rest = stored.pattern.partition(".")
    if head == ">":
        return True
    if not dot:
        return False
    number = _number(head)
    if not stored.partitions and head != "*" and (number is None or number >= most):
        return False
    return _meets(rest, filters)


def _meets(rest: str, filters: Iterable[str]) -> bool:
    return any(_overlap(rest, each) for each in filters)


def _number(pattern: str) -> int | None:
    head = pattern.partition(".")[0]
    return int(head) if head.isdecimal() else None


def _transformed(transform: SubjectTransformConfig) -> Stored:
    """The subjects that a transform makes."""
    tokens: list[str] = []
    parts = _tokens(transform.dest)
    for part in parts:
        if not part.startswith(("{{", "$")):
            tokens.append(part)
        elif _ONE_TOKEN.fullmatch(part):
            tokens.append("*")
        else:  # it may become several tokens
            tokens.append(">")
            break
    numbering = _PARTITION.fullmatch(parts[0])
    return Stored(".".join(tokens), int(numbering.group(1)) if numbering else 0)


def _tokens(destination: str) -> list[str]:
    """The tokens of a destination; a dot within a function, such as a separator, divides none."""
    return re.findall(r"(?:\{\{.*?\}\}|[^.])+", destination) or [destination]


def _renumbered(origin: StreamConfig, partitions: int) -> str:
    """A transform that numbers a stream's subjects with so many partitions, as it is typed."""
    transform = origin.subject_transform
    if transform is not None and _PARTITION.search(transform.dest):
        dest = re.sub(r"(?i)(partition\s*\(\s*)\d+", rf"\g<1>{partitions}", transform.dest)
        return f"{transform.src}:{dest}"
    source = (origin.subjects or (origin.name,))[0]
    stars = range(1, source.split(".").count("*") + 1)
    return f"{source}:{destination(source, stars, partitions)}"


def _span(first: int, count: int) -> str:
    return f"partition {first}" if count == first + 1 else f"partitions {first} to {count - 1}"


def _listed(patterns: Iterable[str]) -> str:
    found = [repr(each) for each in patterns]
    return ", ".join(found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")


def _overlap(one: str, other: str) -> bool:
    return overlaps(one.encode(), other.encode())


def _matches_any(patterns: Iterable[str], subject: str) -> bool:
    return any(matches(each.encode(), subject.encode()) for each in patterns)
