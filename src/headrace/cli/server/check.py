"""``headrace server check connection|jetstream|stream|consumer|message|kv|server|meta|credential``."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Final

import click

from ...errors import HeadraceError
from ...quantities import counted
from ..shared.connection_options import connection_options, given_above, where
from ..shared.errors import Failure
from ..shared.lazy import LazyGroup, Verb
from ..shared.names import BUCKETS, CONSUMERS, STREAMS
from ..shared.output import Output
from ..shared.units import DURATION, moment_of
from ..shared.verbs import Declare, Session, command_of, connected, own_values, run_loop
from .pages import MONITOR, page
from .verdict import Format, Verdict

check = LazyGroup(
    "check",
    {
        "connection": Verb("that the server answers, and how fast", "server.check:connection"),
        "jetstream": Verb("how full the account is", "server.check:jetstream"),
        "stream": Verb("messages, subjects and copies of a stream", "server.check:stream"),
        "consumer": Verb("what waits for a consumer", "server.check:consumer"),
        "message": Verb("age and content of the newest message", "server.check:message"),
        "kv": Verb("that a bucket or a key is there", "server.check:kv"),
        "server": Verb("load and health of the server", "server.check:server"),
        "meta": Verb("the servers that agree on the streams of a cluster", "server.check:meta"),
        "credential": Verb("how long a credentials file is valid", "server.credential:credential"),
    },
    "Checks for monitoring systems. Status: 0 fine, 1 warning, 2 critical.",
)

_FORMATS: Final = ("nagios", "prometheus", "json", "text")


def form_option() -> click.Option:
    """``--format``."""
    return click.Option(
        ["--format"], type=click.Choice(_FORMATS), default="nagios", help="(nagios)"
    )


def judged(verdict: Verdict, form: Format, work: Callable[[], None]) -> int:
    """Fill the verdict and tell it; what fails is critical. The exit status."""
    try:
        work()
    except HeadraceError as error:
        verdict.criticals.append(str(error))
    except Failure as failure:
        verdict.criticals.append(failure.told.text)
    return verdict.tell(form)


def limits_of(name: str, text: str, kind: Any = float) -> tuple[Declare, Declare]:
    """``--NAME-warn`` and ``--NAME-critical``."""
    return (
        click.option(f"--{name}-warn", type=kind, default=None, help=f"{text}: warning"),
        click.option(f"--{name}-critical", type=kind, default=None, help=f"{text}: critical"),
    )


def _checking(
    *declare: Declare, name: str
) -> Callable[[Callable[..., Awaitable[None]]], click.Command]:
    """Make a check of a function that is handed a session and a verdict to fill."""

    def make(function: Callable[..., Awaitable[None]]) -> click.Command:
        @click.pass_context
        @wraps(function)
        def callback(context: click.Context, /, **values: Any) -> int:
            own = own_values(values)
            form = own.pop("format")
            verdict = Verdict(name if "stream" not in own else f"{name} {own['stream']}")

            async def run() -> None:
                async with connected(where(given_above(context)), Output("json")) as session:
                    await function(session, verdict, **own)

            return judged(verdict, form, lambda: run_loop(run()))

        options = [form_option(), *connection_options()]
        return command_of(function, callback, name, declare, options)

    return make


@_checking(
    *limits_of("connect", "seconds to connect", DURATION),
    *limits_of("rtt", "seconds there and back", DURATION),
    name="connection",
)
async def connection(
    session: Session,
    verdict: Verdict,
    connect_warn: float | None,
    connect_critical: float | None,
    rtt_warn: float | None,
    rtt_critical: float | None,
) -> None:
    """Check that the server answers, and how fast."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with connected(session.where, session.output):
        verdict.judge("connect_time", loop.time() - began, connect_warn, connect_critical, unit="s")
    began = loop.time()
    await session.connection.flush()
    verdict.judge("rtt", loop.time() - began, rtt_warn, rtt_critical, unit="s")
    verdict.fine.append(f"connected to {session.connection.server}")


@_checking(
    click.option("--store-warn", type=float, default=75.0, help="per cent of the disk (75)"),
    click.option("--store-critical", type=float, default=90.0, help="per cent of the disk (90)"),
    click.option("--mem-warn", type=float, default=75.0, help="per cent of the memory (75)"),
    click.option("--mem-critical", type=float, default=90.0, help="per cent of the memory (90)"),
    click.option("--streams-warn", type=float, default=None, help="per cent of the streams"),
    click.option("--streams-critical", type=float, default=None, help="per cent of the streams"),
    click.option("--consumers-warn", type=float, default=None, help="per cent of the consumers"),
    click.option(
        "--consumers-critical", type=float, default=None, help="per cent of the consumers"
    ),
    name="jetstream",
)
async def jetstream(session: Session, verdict: Verdict, **limits: float | None) -> None:
    """Check how full the account is."""
    found = await session.js.account_info()
    for short, used, most in (
        ("store", found.storage, found.limits.max_storage),
        ("mem", found.memory, found.limits.max_memory),
        ("streams", found.streams, found.limits.max_streams),
        ("consumers", found.consumers, found.limits.max_consumers),
    ):
        verdict.judge(short, used)
        if most > 0:
            percent = round(100 * used / most, 2)
            warn, critical = limits[f"{short}_warn"], limits[f"{short}_critical"]
            verdict.judge(f"{short}_pct", percent, warn, critical, unit="%")
    verdict.fine.append(
        f"{counted(found.streams, 'stream')}, {counted(found.consumers, 'consumer')}"
    )


@_checking(
    click.argument("stream", shell_complete=STREAMS),
    click.option("--msgs-warn", type=int, default=None, help="warn below this many messages"),
    click.option(
        "--msgs-critical", type=int, default=None, help="critical below this many messages"
    ),
    *limits_of("lag", "messages that a mirror or source has not copied", int),
    *limits_of("subjects", "subjects", int),
    *limits_of("idle", "time without a new message", DURATION),
    name="stream",
)
async def stream(
    session: Session,
    verdict: Verdict,
    stream: str,
    msgs_warn: int | None,
    msgs_critical: int | None,
    lag_warn: int | None,
    lag_critical: int | None,
    subjects_warn: int | None,
    subjects_critical: int | None,
    idle_warn: float | None,
    idle_critical: float | None,
) -> None:
    """Check messages, subjects and copies of a stream."""
    info = await (await session.js.stream(stream)).info()
    state = info.state
    verdict.judge("messages", state.messages, msgs_warn, msgs_critical, below=True)
    verdict.judge("bytes", state.bytes, unit="B")
    verdict.judge("subjects", state.num_subjects, subjects_warn, subjects_critical)
    if state.last_seq:
        idle = (datetime.now(UTC) - moment_of(state.last_ts)).total_seconds()
        verdict.judge("idle", round(idle, 3), idle_warn, idle_critical, unit="s")
    for each in (*([info.mirror] if info.mirror else []), *info.sources):
        verdict.judge(f"lag_{each.name}", each.lag, lag_warn, lag_critical)
        if each.error:
            verdict.criticals.append(f"copy of {each.name}: {each.error.get('description')}")
    for peer in info.cluster.replicas if info.cluster else ():
        if peer.offline or not peer.current:
            verdict.criticals.append(
                f"replica {peer.name} is {'offline' if peer.offline else 'behind'}"
            )
    verdict.fine.append(f"{counted(state.messages, 'message')}")


@_checking(
    click.argument("stream", shell_complete=STREAMS),
    click.argument("consumer", shell_complete=CONSUMERS),
    *limits_of("unprocessed", "messages that wait", int),
    *limits_of("outstanding-ack", "unacknowledged messages", int),
    *limits_of("redelivery", "messages delivered again", int),
    *limits_of("waiting", "pulls that wait", int),
    *limits_of("last-delivery", "time since the last delivery", DURATION),
    *limits_of("last-ack", "time since the last acknowledgement", DURATION),
    click.option(
        "--pinned", is_flag=True, help="critical if a priority group has no pinned client"
    ),
    name="consumer",
)
async def consumer(
    session: Session, verdict: Verdict, stream: str, consumer: str, pinned: bool, **limits: Any
) -> None:
    """Check what waits for a consumer."""
    info = await (await session.js.consumer(stream, consumer)).info()
    verdict.name = f"consumer {stream} {consumer}"
    for name, metric, value in (
        ("unprocessed", "unprocessed", info.num_pending),
        ("outstanding_ack", "ack_pending", info.num_ack_pending),
        ("redelivery", "redelivered", info.num_redelivered),
        ("waiting", "waiting", info.num_waiting),
    ):
        verdict.judge(metric, value, limits[f"{name}_warn"], limits[f"{name}_critical"])
    now = datetime.now(UTC)
    for name, when in (
        ("last_delivery", info.delivered.last_active),
        ("last_ack", info.ack_floor.last_active),
    ):
        if when:
            idle = round((now - moment_of(when)).total_seconds(), 3)
            verdict.judge(name, idle, limits[f"{name}_warn"], limits[f"{name}_critical"], unit="s")
        elif limits[f"{name}_critical"] is not None:
            verdict.criticals.append(f"{name.replace('_', ' ')}: never")
    if info.paused:
        verdict.warnings.append("paused")
    if pinned and not all(group.pinned_client_id for group in info.priority_groups):
        verdict.criticals.append("a priority group has no pinned client")
    verdict.fine.append(f"{counted(info.num_pending, 'message')} left")


@_checking(
    click.argument("bucket", shell_complete=BUCKETS),
    click.option("--key", metavar="KEY", default="", help="that has to be there"),
    *limits_of("values", "values", int),
    name="kv",
)
async def kv(
    session: Session,
    verdict: Verdict,
    bucket: str,
    key: str,
    values_warn: int | None,
    values_critical: int | None,
) -> None:
    """Check that a bucket is there, and a key of it."""
    found = await session.js.key_value(bucket)
    status = await found.status()
    verdict.name = f"kv {bucket}"
    verdict.judge("values", status.values, values_warn, values_critical)
    verdict.judge("bytes", status.size, unit="B")
    verdict.fine.append(f"bucket {bucket} has {status.values:,} values")
    if key:
        entry = await found.get(key)
        verdict.fine.append(f"key {key} is at revision {entry.revision}")


@_checking(
    *limits_of("cpu", "per cent"),
    *limits_of("mem", "bytes", int),
    *limits_of("conn", "connections", int),
    *limits_of("subs", "subscriptions", int),
    *limits_of("slow", "slow consumers", int),
    MONITOR,
    name="server",
)
async def server(session: Session, verdict: Verdict, monitor: str, **limits: Any) -> None:
    """Check load and health of the server."""
    varz = await page(session, "varz", monitor)
    for short, name, metric in (
        ("cpu", "cpu", "cpu"),
        ("mem", "mem", "memory"),
        ("conn", "connections", "connections"),
        ("subs", "subscriptions", "subscriptions"),
        ("slow", "slow_consumers", "slow_consumers"),
    ):
        warn, critical = limits[f"{short}_warn"], limits[f"{short}_critical"]
        verdict.judge(metric, varz.get(name, 0), warn, critical)
    health = await page(session, "healthz", monitor)
    if health.get("status") != "ok":
        verdict.criticals.append(f"health: {health.get('error') or health.get('status')}")
    verdict.fine.append(f"{varz.get('server_name')} is up for {varz.get('uptime')}")


@_checking(
    click.argument("stream", shell_complete=STREAMS),
    click.option("--subject", metavar="PATTERN", default=">", help="the newest of these (>)"),
    click.option("--content", metavar="REGEX", default="", help="what its payload has to have"),
    click.option(
        "--body-timestamp",
        is_flag=True,
        help="its age is that of the time in its payload: seconds since 1970, or RFC 3339",
    ),
    *limits_of("age", "time since it was stored", DURATION),
    name="message",
)
async def message(
    session: Session,
    verdict: Verdict,
    stream: str,
    subject: str,
    content: str,
    body_timestamp: bool,
    age_warn: float | None,
    age_critical: float | None,
) -> None:
    """Check age and content of the newest message of a stream."""
    try:
        pattern = re.compile(content)
    except re.error as error:
        raise Failure(f"--content {content!r} is no regular expression: {error}") from None
    found = await (await session.js.stream(stream)).get_last_message(subject)
    text = found.payload.decode(errors="replace")
    when = time_in(text) if body_timestamp else found.timestamp_ns / 1e9
    age = datetime.now(UTC).timestamp() - when
    verdict.judge("age", round(age, 3), age_warn, age_critical, unit="s")
    verdict.judge("bytes", len(found.payload), unit="B")
    if not pattern.search(text):
        verdict.criticals.append(f"its payload does not have {content!r}")
    verdict.fine.append(f"message {found.sequence} on {found.subject}")


def time_in(text: str) -> float:
    """The time that a payload tells, in seconds since 1970. Raises Failure."""
    word = text.strip()
    try:
        if re.fullmatch(r"\d{1,12}(\.\d+)?", word):
            return float(word)
        moment = datetime.fromisoformat(word)
        if moment.tzinfo is not None:
            return moment.timestamp()
    except (ValueError, OverflowError):
        pass  # said below
    raise Failure(
        f"its payload is {word[:40]!r}, and no time: accepted are seconds since 1970, and RFC 3339"
    )


@_checking(
    click.option(
        "--expect", type=click.IntRange(1), default=None, help="how many servers there should be"
    ),
    *limits_of("lag", "changes that a server is behind", int),
    *limits_of("seen", "time since a server was seen", DURATION),
    MONITOR,
    name="meta",
)
async def meta(
    session: Session, verdict: Verdict, expect: int | None, monitor: str, **limits: float | None
) -> None:
    """Check the servers that agree on the streams of a cluster. A server alone has none."""
    found = await page(session, "jsz", monitor)
    judge_meta(verdict, found.get("meta_cluster"), expect, **limits)


def judge_meta(verdict: Verdict, cluster: Any, expect: int | None, **limits: float | None) -> None:
    """What ``jsz`` says of the cluster. A follower lists the others, but knows only how the leader is."""
    if not isinstance(cluster, dict) or not cluster:
        verdict.criticals.append("the server belongs to no cluster, or JetStream is off there")
        return
    leader, size = cluster.get("leader") or "", cluster.get("cluster_size") or 0
    verdict.judge("peers", size)
    if not leader:
        verdict.criticals.append("there is no leader")
    if expect is not None and size != expect:
        verdict.criticals.append(f"{size} servers, not {expect}")
    replicas = [each for each in cluster.get("replicas") or () if isinstance(each, dict)]
    told = f"{size} servers, led by {leader}"
    if leaders := [each for each in replicas if each.get("name") == leader]:
        replicas = leaders
        told += ", who knows how far the others are: ask there"
    for each in replicas:
        name = each.get("name") or each.get("peer") or "?"
        if each.get("offline"):
            verdict.criticals.append(f"{name} is offline")
        elif not each.get("current"):
            verdict.criticals.append(f"{name} is behind")
        seen = round((each.get("active") or 0) / 1e9, 3)
        verdict.judge(
            f"lag_{name}", each.get("lag") or 0, limits["lag_warn"], limits["lag_critical"]
        )
        verdict.judge(f"seen_{name}", seen, limits["seen_warn"], limits["seen_critical"], unit="s")
    verdict.fine.append(told)
