"""The options of ``format("jetstream")``: one table, and one parser that reports errors.

Names follow Spark's Kafka source where the meaning is the same. Spark passes option names in lower case;
they are matched case-insensitively and shown as written here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from ..api.times import format_time, parse_time
from ..errors import ConfigurationError, InvalidSubjectError
from ..subjects import check_pattern, is_valid_subject

SplitBy = Literal["sequence", "partition"]
OnStreamReset = Literal["fail", "earliest", "latest"]

EARLIEST: Final = "earliest"
LATEST: Final = "latest"


class StartPosition(NamedTuple):
    """Where reading begins or ends: ``earliest``, ``latest``, a ``sequence`` or a ``time`` (RFC 3339)."""

    kind: Literal["earliest", "latest", "sequence", "time"]
    sequence: int = 0
    time: str = ""


class PartitionRule(NamedTuple):
    """How a message's partition is derived from its subject.

    ``token`` is the number (from 1) of the subject token that *is* the partition. With 0 the partition is
    computed, ``FNV-1a(tokens) mod N``, over the ``hashed`` tokens (none: the whole subject).
    """

    token: int = 1
    hashed: tuple[int, ...] = ()


class BadMessageRule(NamedTuple):
    """What to do with a message that makes no row; ``subject`` is where a dead letter goes."""

    action: Literal["fail", "skip", "deadletter"] = "fail"
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach the server. Picklable; its ``repr`` shows no secret."""

    servers: tuple[str, ...]
    user: str = ""
    password: str = ""
    token: str = ""
    tls: bool = False
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_hostname: str = ""
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 5.0

    def __repr__(self) -> str:
        # A URL may also contain a password.
        shown = ", ".join(re.sub(r"//[^/@]*@", "//***@", server) for server in self.servers)
        return f"Connection({shown})"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Every option, checked. Sequences are inclusive, as JetStream counts them."""

    connection: Connection
    stream: str
    subjects: tuple[str, ...]
    durable: str
    starting: StartPosition
    ending: StartPosition
    max_offsets_per_trigger: int | None
    fail_on_data_loss: bool
    on_stream_reset: OnStreamReset
    on_bad_message: BadMessageRule
    split_by: SplitBy
    partitions: int
    partition_rule: PartitionRule
    max_tasks: int
    min_messages_per_task: int
    include_headers: bool
    poll_timeout_s: float
    read_timeout_s: float
    reconnect_timeout_s: float
    rows_per_batch: int


class Option(NamedTuple):
    """One option as users see it; ``default`` is used if it is not given."""

    name: str
    default: str
    doc: str
    parse: Callable[[str, str], Any]


def _fail(name: str, value: str, accepted: str) -> ConfigurationError:
    return ConfigurationError(
        f"jetstream source: option {name!r} is {value!r}; accepted: {accepted}"
    )


def _text(name: str, value: str) -> str:
    return value


def _texts(name: str, value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _flag(name: str, value: str) -> bool:
    lowered = value.strip().lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    raise _fail(name, value, "true or false")


def _at_least(minimum: int) -> Callable[[str, str], int]:
    def parse(name: str, value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise _fail(name, value, f"a whole number, at least {minimum}") from None
        if number < minimum:
            raise _fail(name, value, f"a whole number, at least {minimum}")
        return number

    return parse


def _seconds(name: str, value: str) -> float:
    """A plain number is seconds; ``ms``, ``s`` and ``m`` are units."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m)?", value.strip())
    if found is None:
        raise _fail(name, value, "a duration such as 250ms, 5s or 1m")
    return float(found[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0}[found[2] or "s"]


def _subjects(name: str, value: str) -> tuple[str, ...]:
    subjects = _texts(name, value)
    for subject in subjects:
        try:
            check_pattern(subject.encode())
        except InvalidSubjectError as error:
            raise _fail(name, value, f"subjects such as orders.* or orders.>: {error}") from None
    return subjects


def _name(name: str, value: str) -> str:
    if not value or re.search(r"[\s.*>/\\]", value) or len(value) > 255:
        raise _fail(
            name, value, "a name without blanks, dots, *, >, / and \\, at most 255 characters"
        )
    return value


def _position(name: str, value: str) -> StartPosition:
    lowered = value.strip().lower()
    if lowered == EARLIEST and name.lower().startswith("starting"):
        return StartPosition("earliest")
    if lowered == LATEST:
        return StartPosition("latest")
    if re.fullmatch(r"\d+", lowered):
        return StartPosition("sequence", int(lowered))
    words = "earliest, latest" if name.lower().startswith("starting") else "latest"
    raise _fail(name, value, f"{words} or a stream sequence such as 1000")


def _timestamp(name: str, value: str) -> StartPosition:
    """Milliseconds since the epoch, as for Kafka, or RFC 3339."""
    text = value.strip()
    if re.fullmatch(r"\d+", text):
        return StartPosition("time", time=format_time(int(text) * 1_000_000))
    try:
        return StartPosition("time", time=format_time(parse_time(text)))
    except ValueError:
        raise _fail(
            name, value, "milliseconds since the epoch, or a time such as 2013-01-01T05:00:00Z"
        ) from None


def _split(name: str, value: str) -> str:
    lowered = value.strip().lower()
    if lowered not in ("sequence", "partition"):
        raise _fail(name, value, "sequence or partition")
    return lowered


def _on_reset(name: str, value: str) -> str:
    lowered = value.strip().lower()
    if lowered not in ("fail", EARLIEST, LATEST):
        raise _fail(name, value, "fail, earliest or latest")
    return lowered


def _bad_messages(name: str, value: str) -> BadMessageRule:
    action, colon, subject = value.strip().partition(":")
    lowered = action.strip().lower()
    if not colon and lowered == "fail":
        return BadMessageRule("fail")
    if not colon and lowered == "skip":
        return BadMessageRule("skip")
    subject = subject.strip()
    if lowered == "deadletter" and is_valid_subject(subject.encode()):
        return BadMessageRule("deadletter", subject)
    raise _fail(name, value, "fail, skip, or deadletter:<subject> with a subject without wildcards")


def _rule(name: str, value: str) -> PartitionRule:
    text = value.strip().lower()
    found = re.fullmatch(r"token(?:=([1-9]\d*))?", text)
    if found:
        return PartitionRule(token=int(found[1] or 1))
    found = re.fullmatch(r"hash(?:=([1-9]\d*(?:,[1-9]\d*)*))?", text)
    if found:
        return PartitionRule(0, tuple(int(t) for t in found[1].split(",")) if found[1] else ())
    raise _fail(
        name, value, "token, token=K, hash or hash=K,L (K, L: numbers of subject tokens, from 1)"
    )


# fmt: off
OPTIONS: Final[tuple[Option, ...]] = (
    Option("servers", "nats://127.0.0.1:4222",
        "Server URLs, separated by commas (nats:// or tls://); the first that answers is used.", _texts),
    Option("stream", "", "The stream to read. Required.", _name),
    Option("subjects", "", "Read only these subjects (wildcards allowed); default: all.", _subjects),
    Option("durable", "", "A durable consumer on which this query shows its progress. It delivers nothing.",
        _name),
    Option("startingOffsets", EARLIEST,
        "Where a new query begins: earliest, latest or the first stream sequence to read. For streaming, "
        "latest needs durable, which records the position.", _position),
    Option("startingTimestamp", "",
        "Begin at the first message stored at or after this time; overrides startingOffsets.", _timestamp),
    Option("endingOffsets", LATEST,
        "Where a batch read ends: latest, or the last stream sequence to read. Not for streaming.",
        _position),
    Option("endingTimestamp", "",
        "End a batch read before the first message stored at or after this time. Not for streaming.",
        _timestamp),
    Option("maxOffsetsPerTrigger", "",
        "At most this many messages per micro-batch, of the subjects that are read; default: all.",
        _at_least(1)),
    Option("failOnDataLoss", "true",
        "Fail when messages were removed before they were read; false: continue without them.", _flag),
    Option("onStreamReset", "",
        "What a streaming query does when its stream was deleted and created again, or restored from an "
        "older copy: fail, or go on with the new one from earliest or latest. Default: fail, or earliest "
        "with failOnDataLoss=false. A batch read always fails.", _on_reset),
    Option("onBadMessage", "fail",
        "What to do with a message that makes no row (a subject that is not UTF-8, a malformed header): "
        "fail, skip, or deadletter:<subject>, which publishes it to that subject of a stream.",
        _bad_messages),
    Option("splitBy", "sequence",
        "Tasks take contiguous sequences, or whole partitions (order per key inside a task).", _split),
    Option("partitions", "", "How many partitions there are; needed for splitBy=partition.", _at_least(1)),
    Option("partitionBy", "token",
        "How to find a message's partition: token=K, the K-th subject token is its number; or hash=K,L, the "
        "server's partition() over these tokens; hash alone takes the whole subject.", _rule),
    Option("maxTasks", "",
        "At most this many tasks per batch; default 16, for splitBy=partition one per partition.",
        _at_least(1)),
    Option("minMessagesPerTask", "50000", "Limits the tasks so that each reads at least this many messages.",
        _at_least(1)),
    Option("includeHeaders", "false", "Add the column headers.", _flag),
    Option("pollTimeout", "250ms", "How long an idle query waits before it polls again.", _seconds),
    Option("readTimeout", "30s", "Fail a task that receives nothing for this long.", _seconds),
    Option("reconnectTimeout", "2m",
        "How long a running query and its tasks wait for a server that is away, and with "
        "onStreamReset=earliest or latest for a stream that was deleted.", _seconds),
    Option("rowsPerBatch", "10000", "Rows per Arrow batch handed to Spark.", _at_least(1)),
    Option("user", "", "User name.", _text),
    Option("password", "", "Password.", _text),
    Option("token", "", "Authentication token.", _text),
    Option("tls", "false", "Require TLS (implied by tls:// URLs).", _flag),
    Option("tlsCa", "", "File of the certificate authorities to trust; default: the system's.", _text),
    Option("tlsCert", "", "Client certificate, a PEM file.", _text),
    Option("tlsKey", "", "Key of the client certificate, a PEM file.", _text),
    Option("tlsHostname", "", "The name to expect in the server's certificate.", _text),
    Option("connectTimeout", "5s", "How long to wait for one server to accept a connection.", _seconds),
    Option("requestTimeout", "5s", "How long to wait for an answer of the JetStream API.", _seconds),
)
# fmt: on

_ALIASES: Final = {"url": "servers", "path": "stream", "subject": "subjects"}
_BY_NAME: Final = {option.name.lower(): option for option in OPTIONS}


def parse_options(raw: Mapping[str, str], *, streaming: bool | None = None) -> SourceOptions:
    """Check and parse the options of a user.

    Args:
        raw: names in any case, values as text. ``url``, ``subject`` and ``path`` (set by ``load("X")``)
            mean servers, subjects and stream.
        streaming: whether a stream is read; None if Spark has not said yet.

    Raises:
        ConfigurationError: an option is unknown, wrong or missing, or two contradict each other.
    """
    values = _collect(raw)
    if not values["stream"]:
        raise ConfigurationError(
            'jetstream source: option \'stream\' is missing; add .option("stream", "NAME")'
        )
    _check_together(values, streaming)
    starting: StartPosition = values["startingTimestamp"] or values["startingOffsets"]
    ending: StartPosition = values["endingTimestamp"] or values["endingOffsets"]
    split_by: SplitBy = values["splitBy"]
    partitions: int = values["partitions"] or 0
    return SourceOptions(
        connection=_connection(values),
        stream=values["stream"],
        subjects=() if ">" in values["subjects"] else values["subjects"],
        durable=values["durable"],
        starting=starting,
        ending=ending,
        max_offsets_per_trigger=values["maxOffsetsPerTrigger"] or None,
        fail_on_data_loss=values["failOnDataLoss"],
        on_stream_reset=_reset_rule(values, streaming),
        on_bad_message=values["onBadMessage"],
        split_by=split_by,
        partitions=partitions,
        partition_rule=values["partitionBy"],
        max_tasks=values["maxTasks"] or (partitions if split_by == "partition" else 16),
        min_messages_per_task=values["minMessagesPerTask"],
        include_headers=values["includeHeaders"],
        poll_timeout_s=values["pollTimeout"],
        read_timeout_s=values["readTimeout"],
        reconnect_timeout_s=values["reconnectTimeout"],
        rows_per_batch=values["rowsPerBatch"],
    )


def _unknown(key: str) -> ConfigurationError:
    """About an option that does not exist; Spark passes its name in lower case."""
    near = difflib.get_close_matches(key.lower(), [*_BY_NAME, *_ALIASES], n=1)
    name = _BY_NAME[near[0]].name if near and near[0] in _BY_NAME else "".join(near)
    hint = f"; did you mean {name!r}?" if name else ""
    accepted = ", ".join(sorted(option.name for option in OPTIONS))
    return ConfigurationError(
        f"jetstream source: unknown option {key!r}{hint}; accepted: {accepted}"
    )


def _collect(raw: Mapping[str, str]) -> dict[str, Any]:
    """Option name → parsed value (of its default, or a falsy one, if it is not given)."""
    given: dict[str, str] = {}
    for key, value in raw.items():
        lowered = _ALIASES.get(key.lower(), key.lower()).lower()
        option = _BY_NAME.get(lowered)
        if option is None:
            raise _unknown(key)
        if option.name in given and given[option.name] != value:
            raise ConfigurationError(f"jetstream source: option {option.name!r} is given twice")
        given[option.name] = value
    values: dict[str, Any] = {}
    for option in OPTIONS:
        text = given.get(option.name, option.default)
        empty_is_default = text == "" and option.default == ""
        values[option.name] = "" if empty_is_default else option.parse(option.name, text)
    values["subjects"] = values["subjects"] or ()
    return values


def _reset_rule(values: Mapping[str, Any], streaming: bool | None) -> OnStreamReset:
    if streaming is False:
        return "fail"
    rule: OnStreamReset | Literal[""] = values["onStreamReset"]
    return rule or ("fail" if values["failOnDataLoss"] else "earliest")


def _check_together(values: Mapping[str, Any], streaming: bool | None) -> None:
    if values["splitBy"] == "partition" and not values["partitions"]:
        raise ConfigurationError(
            "jetstream source: splitBy=partition needs the option 'partitions', the number of partitions"
        )
    if values["token"] and (values["user"] or values["password"]):
        raise ConfigurationError("jetstream source: give either 'token', or 'user' and 'password'")
    if bool(values["tlsCert"]) != bool(values["tlsKey"]):
        raise ConfigurationError("jetstream source: 'tlsCert' and 'tlsKey' belong together")
    if not values["servers"]:
        raise ConfigurationError("jetstream source: option 'servers' names no server")
    if streaming is not True:
        return
    if values["endingTimestamp"] or values["endingOffsets"].kind != "latest":
        raise ConfigurationError(
            "jetstream source: 'endingOffsets' and 'endingTimestamp' are for batch reads; a stream has no end"
        )
    from_latest = values["startingOffsets"].kind == "latest" and not values["startingTimestamp"]
    if from_latest and not values["durable"]:
        raise ConfigurationError(
            "jetstream source: startingOffsets=latest needs the option 'durable': Spark keeps no note of "
            "where a stream began until the first batch is committed, the durable consumer does"
        )


def _connection(values: Mapping[str, Any]) -> Connection:
    return Connection(
        servers=values["servers"],
        user=values["user"],
        password=values["password"],
        token=values["token"],
        tls=values["tls"],
        tls_ca=values["tlsCa"],
        tls_cert=values["tlsCert"],
        tls_key=values["tlsKey"],
        tls_hostname=values["tlsHostname"],
        connect_timeout_s=values["connectTimeout"],
        request_timeout_s=values["requestTimeout"],
    )
