"""Option tables: what the options of a reader or a writer are, how they are collected from a user's, and how
their values are read. What is not accepted is a ``RefusedError``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from ...errors import ConfigurationError, InvalidSubjectError
from ...quantities import parse_duration
from ...subjects import check_pattern, is_valid_subject

__all__ = ["IN_MS", "MOVED", "MOVED_OF_SINK", "SAME", "Moved"]


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


class Option(NamedTuple):
    """One option as users see it; ``default`` is used if it is not given."""

    name: str
    default: str
    doc: str
    parse: Callable[[str], Any]


class Accepted:
    """The options that one reader or writer accepts.

    Args:
        who: begins each error, such as ``jetstream source``.
        tables: they are shown in this order.
        aliases: other names, in lower case, and the option that each means.
        in_ms: other names of durations, whose values are milliseconds without a unit.
        moved: options of Spark's Kafka source or sink that are refused with what to use instead.
    """

    def __init__(
        self,
        who: str,
        tables: Iterable[Iterable[Option]],
        aliases: Mapping[str, str],
        *,
        in_ms: Mapping[str, str] = MappingProxyType({}),
        moved: Iterable[Moved] = (),
    ) -> None:
        self.who = who
        self.options = tuple(option for table in tables for option in table)
        self._aliases = {**aliases, **{key.lower(): name for key, name in in_ms.items()}}
        self._in_ms = frozenset(map(str.lower, in_ms))
        self._moved = tuple(moved)
        self._by_name = {option.name.lower(): option for option in self.options}

    def collect(self, raw: Mapping[str, str]) -> dict[str, Any]:
        """Option name → parsed value, or ``""`` for an option that is not given and has no default.

        Raises:
            ConfigurationError: an option is unknown, given twice or has a value that is not accepted.
        """
        given: dict[str, str] = {}
        for key, value in raw.items():
            lowered = self._aliases.get(key.lower(), key).lower()
            option = self._by_name.get(lowered)
            if option is None:
                raise self._unknown(key)
            meant = f"{value}ms" if key.lower() in self._in_ms else value
            if option.name in given and given[option.name] != meant:
                raise self.error(f"option {option.name!r} is given twice")
            given[option.name] = meant
        return {option.name: self._value(option, given) for option in self.options}

    def error(self, said: str) -> ConfigurationError:
        """An error about options."""
        return ConfigurationError(f"{self.who}: {said}")

    def _value(self, option: Option, given: Mapping[str, str]) -> Any:
        value = given.get(option.name, option.default)
        if value == "" and option.default == "":
            return ""
        try:
            return option.parse(value)
        except RefusedError as refused:
            raise self.error(f"option {option.name!r} is {value!r}; accepted: {refused}") from None

    def _unknown(self, key: str) -> ConfigurationError:
        """About an option that does not exist; Spark passes its name in lower case."""
        for moved in self._moved:
            begins = moved.name.endswith(".") and key.lower().startswith(moved.name.lower())
            if begins or key.lower() == moved.name.lower():
                name = f"{moved.name}*" if begins else moved.name
                return self.error(f"option {name!r} is one of Kafka's; {moved.instead}")
        near = difflib.get_close_matches(key.lower(), [*self._by_name, *self._aliases], n=1)
        known = self._by_name.get(near[0]) if near else None
        name = known.name if known else "".join(near)
        hint = f"; did you mean {name!r}?" if name else ""
        names = ", ".join(sorted(option.name for option in self.options))
        return self.error(f"unknown option {key!r}{hint}; accepted: {names}")


SAME: Final = (
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "includeHeaders",
)
IN_MS: Final = {"kafkaConsumer.pollTimeoutMs": "readTimeout"}
"""Accepted: durations in milliseconds, and the option that each is."""


class Moved(NamedTuple):
    """An option that has another name or no meaning here. A name that ends in a dot begins many."""

    name: str
    instead: str


_LOGIN: Final = (
    "give 'user' and 'password', 'token', 'creds' or 'nkeySeed' to log in, 'tls', 'tlsCa', 'tlsCert' and "
    "'tlsKey' for TLS"
)
_CLIENT: Final = (
    Moved("kafka.bootstrap.servers", "use 'servers'"),
    Moved("kafka.security.", _LOGIN),
    Moved("kafka.sasl.", _LOGIN),
    Moved("kafka.ssl.", _LOGIN),
)
_RETRIES: Final = "use 'reconnectTimeout', how long to go on trying: pauses grow from 0.1 to 5 s"
_OTHERS: Final = Moved("kafka.", "a NATS client has other options, those of the connection")
MOVED: Final = (
    Moved("subscribe", "use 'stream' for streams, 'subjects' for a part of their subjects"),
    Moved("subscribePattern", "use 'stream' with one stream, and wildcards in 'subjects'"),
    Moved(
        "assign",
        "use 'subjects', or splitBy=partition with 'partitions', or 'group' for the partitions of a group",
    ),
    Moved("fetchOffset.numRetries", _RETRIES),
    Moved("fetchOffset.retryIntervalMs", _RETRIES),
    Moved("maxRecordsPerPartition", "use 'minMessagesPerTask' and 'maxTasks', which size tasks"),
    Moved("groupIdPrefix", "leave it out: reading needs no group; 'durable' shows the progress"),
    Moved(
        "kafka.group.id",
        "use 'durable' to show the progress under a name, or 'group' to read as a member of a group",
    ),
    *_CLIENT,
    _OTHERS,
)
MOVED_OF_SINK: Final = (
    Moved(
        "topic", "use 'stream' and 'subject'; the column subject is what Kafka's column topic was"
    ),
    Moved("includeHeaders", "leave it out: a column headers is written if there is one"),
    Moved("kafka.transactional.id", "use delivery=exactlyOnce with 'sinkId'"),
    Moved("kafka.enable.idempotence", "use 'delivery': dedupe or exactlyOnce"),
    Moved(
        "kafka.acks", "leave it out: a row counts as written when the stream has acknowledged it"
    ),
    *_CLIENT,
    _OTHERS,
)
