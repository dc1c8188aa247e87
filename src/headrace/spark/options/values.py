"""Reads the values of options: text in, values out. What is not accepted is a ``RefusedError``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from ...errors import InvalidSubjectError
from ...quantities import parse_duration
from ...subjects import check_pattern, is_valid_subject


class RefusedError(ValueError):
    """A value that an option does not accept; its text says what it does accept."""


def text(value: str) -> str:
    """The value as it is."""
    return value


def texts(value: str) -> tuple[str, ...]:
    """The parts between commas, without the blanks around them and without empty ones."""
    return tuple(part.strip() for part in value.split(",") if part.strip())


def flag(value: str) -> bool:
    """``true`` or ``false``, in any case."""
    lowered = value.strip().lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    raise RefusedError("true or false")


def at_least(minimum: int) -> Callable[[str], int]:
    """A whole number, not smaller than ``minimum``."""

    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            number = minimum - 1
        if number < minimum:
            raise RefusedError(f"a whole number, at least {minimum}")
        return number

    return parse


def seconds(value: str) -> float:
    """A duration in seconds, such as ``1m30s``; a plain number is seconds."""
    try:
        return parse_duration(value.strip())
    except ValueError:
        raise RefusedError("a duration such as 250ms, 5s or 1m") from None


def one_of(*words: str) -> Callable[[str], str]:
    """One of these words, in any case."""

    def parse(value: str) -> str:
        lowered = value.strip().lower()
        if lowered not in words:
            raise RefusedError(", ".join(words[:-1]) + f" or {words[-1]}")
        return lowered

    return parse


def name(value: str) -> str:
    """The name of a stream or consumer."""
    if not value or re.search(r"[\s.*>/\\]", value) or len(value) > 255:
        raise RefusedError("a name without blanks, dots, *, >, / and \\, at most 255 characters")
    return value


def patterns(value: str) -> tuple[str, ...]:
    """Subjects, separated by commas; wildcards allowed."""
    subjects = texts(value)
    for subject in subjects:
        try:
            check_pattern(subject.encode())
        except InvalidSubjectError as error:
            raise RefusedError(f"subjects such as orders.* or orders.>: {error}") from None
    return subjects


def subject(value: str) -> str:
    """One subject without wildcards."""
    if not is_valid_subject(value.encode()):
        raise RefusedError("a subject without wildcards")
    return value


class BadRule(NamedTuple):
    """What to do with a message that makes no row, or a row that makes no message.

    ``subject`` is where a dead letter goes.
    """

    action: Literal["fail", "skip", "deadletter"] = "fail"
    subject: str = ""


def bad_rule(value: str) -> BadRule:
    """``fail``, ``skip`` or ``deadletter:<subject>``."""
    action, _, subject = (part.strip() for part in value.partition(":"))
    lowered = action.lower()
    if lowered == "deadletter" and is_valid_subject(subject.encode()):
        return BadRule("deadletter", subject)
    if ":" not in value and lowered == "fail":
        return BadRule("fail")
    if ":" not in value and lowered == "skip":
        return BadRule("skip")
    raise RefusedError("fail, skip, or deadletter:<subject> with a subject without wildcards")
