"""``headrace consumer …``: consumers listed, shown, made, changed, copied, paused, deleted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from ..api.base import to_wire
from ..api.consumers import ConsumerConfig, ConsumerInfo
from ..api.times import format_time
from ..quantities import counted
from .shared.asking import may_go_on
from .shared.configuration import config_file, differences, key_values, metadata_text, replaced
from .shared.errors import Failure
from .shared.names import CONSUMER, STREAM
from .shared.output import Sheet, Table
from .shared.units import (
    DURATION,
    SIZE,
    ago,
    bytes_text,
    count_text,
    duration_text,
    parse_duration,
    parse_moment,
)
from .shared.verbs import Declare, Session, online

SETTINGS: Final[tuple[Declare, ...]] = (
    click.option("--filter", "filters", multiple=True, metavar="SUBJECT", help="repeatable, or with commas"),
    click.option("--description", metavar="TEXT", default=None),
    click.option("--ack", type=click.Choice(["explicit", "all", "none"]), default=None, help="(explicit)"),
    click.option("--deliver", metavar="WHERE", default=None,
        help="all, new, last, subject (the last of each), a sequence, a time, or 1h ago (all)"),
    click.option("--wait", type=DURATION, default=None, help="how long an answer may take (30s)"),
    click.option("--max-deliver", type=int, default=None, help="how often a message is tried"),
    click.option("--backoff", metavar="DURATIONS", default=None, help="waits between tries: 1s,10s,1m"),
    click.option("--max-pending", type=int, default=None, help="most unacknowledged messages (1000)"),
    click.option("--max-waiting", type=int, default=None, help="pulls that wait (512)"),
    click.option("--max-pull-batch", type=int, default=None, help="messages of one pull"),
    click.option("--max-pull-expire", type=DURATION, default=None, help="how long a pull waits"),
    click.option("--max-pull-bytes", type=SIZE, default=None, help="bytes of one pull"),
    click.option("--inactive-threshold", type=DURATION, default=None, help="remove it when unused so long"),
    click.option("--replay", type=click.Choice(["instant", "original"]), default=None, help="how fast"),
    click.option("--sample", type=click.IntRange(0, 100), default=None, metavar="PERCENT",
        help="of answers to tell in advisories"),
    click.option("--replicas", type=int, default=None, help="copies in a cluster"),
    click.option("--memory/--no-memory", default=None, help="keep its state in memory"),
    click.option("--headers-only/--no-headers-only", default=None, help="deliver no payloads"),
    click.option("--pinned-groups", metavar="GROUP", default=None, help="one client at a time in this group"),
    click.option("--pinned-ttl", type=DURATION, default=None, help="a pin ends when idle so long (2m)"),
    click.option("--overflow-groups", metavar="GROUP", default=None, help="others help when much is left"),
    click.option("--prioritized-groups", metavar="GROUP", default=None, help="pulls with a priority"),
    click.option("--target", metavar="SUBJECT", default=None, help="push to this subject"),
    click.option("--deliver-group", metavar="NAME", default=None, help="queue of a push consumer"),
    click.option("--heartbeat", type=DURATION, default=None, help="of a push consumer"),
    click.option("--flow-control/--no-flow-control", default=None, help="of a push consumer"),
    click.option("--bps", type=SIZE, default=None, help="bits a second of a push consumer"),
    click.option("--metadata", multiple=True, metavar="KEY=VALUE", help="repeatable"),
    click.option("--config", "file", type=click.Path(dir_okay=False, path_type=Path), default=None,
        metavar="FILE", help="a configuration in JSON, as `consumer info --json` prints it"),
)  # fmt: skip

_FIELDS: Final = {
    "description": "description", "ack": "ack_policy", "wait": "ack_wait", "max_deliver": "max_deliver",
    "max_pending": "max_ack_pending", "max_waiting": "max_waiting", "max_pull_batch": "max_batch",
    "max_pull_expire": "max_expires", "max_pull_bytes": "max_bytes",
    "inactive_threshold": "inactive_threshold", "replay": "replay_policy", "replicas": "num_replicas",
    "memory": "mem_storage", "headers_only": "headers_only", "pinned_ttl": "priority_timeout",
    "target": "deliver_subject", "deliver_group": "deliver_group", "heartbeat": "idle_heartbeat",
    "flow_control": "flow_control", "bps": "rate_limit_bps",
}  # fmt: skip
"""The fields of a configuration by the option that sets them."""

_DELIVER: Final = {
    "all": "all", "new": "new", "last": "last", "subject": "last_per_subject",
    "1st": "all", "next": "new",
}  # fmt: skip
_POLICIES: Final = (
    ("pinned_groups", "pinned_client"),
    ("overflow_groups", "overflow"),
    ("prioritized_groups", "prioritized"),
)


def changes_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that these options set. Raises Failure for what cannot be read."""
    found = {field: given[name] for name, field in _FIELDS.items() if given[name] is not None}
    filters = tuple(each for text in given["filters"] for each in text.split(",") if each)
    if len(filters) == 1:
        found |= {"filter_subject": filters[0], "filter_subjects": ()}
    elif filters:
        found |= {"filter_subject": "", "filter_subjects": filters}
    if given["deliver"] is not None:
        found |= deliver_from(given["deliver"], datetime.now(UTC))
    if given["backoff"] is not None:
        try:
            found["backoff"] = tuple(parse_duration(each) for each in given["backoff"].split(","))
        except ValueError as error:
            raise Failure(f"--backoff: {error}") from None
    if given["sample"] is not None:
        found["sample_freq"] = f"{given['sample']}%"
    if given["metadata"]:
        found["metadata"] = key_values(given["metadata"])
    policies = [(given[name], policy) for name, policy in _POLICIES if given[name]]
    if len(policies) > 1:
        raise Failure("give one of --pinned-groups, --overflow-groups and --prioritized-groups")
    for groups, policy in policies:
        found |= {"priority_groups": tuple(groups.split(",")), "priority_policy": policy}
    return found


def deliver_from(text: str, now: datetime) -> dict[str, Any]:
    """Where to begin: a word, a sequence, a time, or how long ago. Raises Failure."""
    if text in _DELIVER:
        return {"deliver_policy": _DELIVER[text]}
    if text.isdigit():
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": int(text)}
    try:
        moment = parse_moment(text, now)
    except ValueError:
        raise Failure(
            f"--deliver {text!r}: accepted are all, new, last, subject, a sequence, a time, and 1h"
        ) from None
    start = format_time(round(moment.timestamp() * 1e9))
    return {"deliver_policy": "by_start_time", "opt_start_time": start}


@online(STREAM, CONSUMER)
async def info(session: Session, stream: str, consumer: str) -> None:
    """Show a consumer: configuration, position, what is left."""
    found = await (await session.js.consumer(stream, consumer)).info()
    session.output.show(to_wire(found), consumer_sheet(found))


def consumer_sheet(found: ConsumerInfo) -> Sheet:
    """A consumer for people."""
    config = found.config
    created = found.created[:19].replace("T", " ")
    sheet = Sheet(f"Consumer {found.name} of stream {found.stream_name}, created {created} UTC")
    sheet.section("", _what(config))
    sheet.section("Limits", _limits(config))
    sheet.section("State", _state(found))
    sheet.section(
        "Priority groups",
        (
            (
                group.group,
                f"pinned client {group.pinned_client_id}" if group.pinned_client_id else "nobody",
            )
            for group in found.priority_groups
        ),
    )
    return sheet


def _what(config: ConsumerConfig) -> list[tuple[str, object]]:
    filters = config.filter_subjects or ((config.filter_subject,) if config.filter_subject else ())
    where = {
        "by_start_sequence": f"from sequence {config.opt_start_seq:,}",
        "by_start_time": f"from {config.opt_start_time}",
        "last_per_subject": "the last of each subject",
    }
    return [
        ("Description", config.description),
        ("Kind", f"push to {config.deliver_subject}" if config.deliver_subject else "pull"),
        ("Delivery group", config.deliver_group),
        ("Filter", ", ".join(filters) or "everything"),
        ("Deliver", where.get(config.deliver_policy, config.deliver_policy)),
        ("Acknowledgement", config.ack_policy),
        ("Replay", config.replay_policy if config.replay_policy != "instant" else ""),
        ("Headers only", "yes" if config.headers_only else ""),
        ("Kept", "until deleted" if config.durable_name else "while it is used"),
        ("Priority policy", config.priority_policy if config.priority_policy != "none" else ""),
        (
            "Pin ends after",
            duration_text(config.priority_timeout) if config.priority_timeout else "",
        ),
        ("Metadata", metadata_text(config.metadata)),
    ]


def _limits(config: ConsumerConfig) -> list[tuple[str, object]]:
    seconds = config.inactive_threshold
    return [
        ("Time for an answer", duration_text(config.ack_wait) if config.ack_wait else ""),
        ("Waits between tries", ", ".join(map(duration_text, config.backoff))),
        ("Maximum tries", count_text(config.max_deliver)),
        ("Maximum unacked", count_text(config.max_ack_pending or -1)),
        ("Maximum waiting pulls", count_text(config.max_waiting) if config.max_waiting else ""),
        ("Maximum batch of a pull", count_text(config.max_batch) if config.max_batch else ""),
        ("Maximum wait of a pull", duration_text(config.max_expires) if config.max_expires else ""),
        ("Maximum bytes of a pull", bytes_text(config.max_bytes) if config.max_bytes else ""),
        ("Removed when unused for", duration_text(seconds) if seconds else ""),
    ]


def _state(found: ConsumerInfo) -> list[tuple[str, object]]:
    now = datetime.now(UTC)
    delivered, floor = found.delivered, found.ack_floor
    paused = f"yes, for {duration_text(found.pause_remaining)} more" if found.paused else ""
    last, acked = ago(delivered.last_active, now), ago(floor.last_active, now)
    return [
        ("Paused", paused),
        (
            "Last delivered",
            f"message {delivered.consumer_seq:,}, stream sequence {delivered.stream_seq:,}"
            + (f", {last} ago" if last != "never" else ""),
        ),
        (
            "Acknowledged up to",
            f"message {floor.consumer_seq:,}, stream sequence {floor.stream_seq:,}"
            + (f", {acked} ago" if acked != "never" else ""),
        ),
        ("Unacknowledged", f"{found.num_ack_pending:,}"),
        ("Delivered again", f"{found.num_redelivered:,}"),
        ("Waiting", f"{found.num_pending:,}"),
        ("Waiting pulls", "" if found.config.deliver_subject else f"{found.num_waiting:,}"),
        (
            "Somebody listens",
            ("yes" if found.push_bound else "no") if found.config.deliver_subject else "",
        ),
    ]


@online(STREAM, click.option("-n", "--names", is_flag=True, help="names alone, one a line"))
async def ls(session: Session, stream: str, names: bool) -> None:
    """List the consumers of a stream."""
    if names:
        listed = sorted([name async for name in session.js.consumer_names(stream)])
        session.output.show(listed, *listed)
        return
    now = datetime.now(UTC)
    found = sorted(
        [each async for each in session.js.consumers(stream)], key=lambda each: each.name
    )
    table = Table(
        ("NAME", "DESCRIPTION", "CREATED", "WAITING", "UNACKED", "LAST DELIVERY"),
        right=frozenset(("WAITING", "UNACKED")),
        empty=f"no consumers; `headrace consumer create {stream} NAME` creates one",
    )
    for each in found:
        table.add(
            each.name,
            each.config.description,
            each.created[:19].replace("T", " "),
            f"{each.num_pending:,}",
            f"{each.num_ack_pending:,}",
            ago(each.delivered.last_active, now),
        )
    session.output.show([to_wire(each) for each in found], table)


@online(STREAM)
async def report(session: Session, stream: str) -> None:
    """Say what each consumer has left to do, and how it does.

    \b
    ACK WAIT  how long an acknowledgement may take     WAITING  messages it has not delivered yet
    UNACKED   delivered and not yet acknowledged       SHARE    those that wait, of all of the stream
    AGAIN     messages delivered more than once        PULLS    pull requests that wait
    FLOOR     everything up to this sequence is acknowledged
    """
    state = (await (await session.js.stream(stream)).info()).state
    found = sorted(
        [each async for each in session.js.consumers(stream)], key=lambda each: -each.num_pending
    )
    numbers = ("ACK WAIT", "WAITING", "SHARE", "UNACKED", "AGAIN", "PULLS", "FLOOR")
    table = Table(
        ("CONSUMER", "KIND", "ACK", *numbers, "STATE"),
        right=frozenset(numbers),
        empty=f"no consumers; `headrace consumer create {stream} NAME` creates one",
    )
    rows = []
    for each in found:
        config = each.config
        share = each.num_pending / state.messages if state.messages else 0.0
        pinned = [
            group.pinned_client_id for group in each.priority_groups if group.pinned_client_id
        ]
        condition = "paused" if each.paused else f"pinned {', '.join(pinned)}" if pinned else ""
        table.add(
            each.name,
            "push" if config.deliver_subject else "pull",
            config.ack_policy,
            f"{config.ack_wait:g}s",
            f"{each.num_pending:,}",
            f"{share:.0%}",
            f"{each.num_ack_pending:,}",
            f"{each.num_redelivered:,}",
            f"{each.num_waiting:,}",
            f"{each.ack_floor.stream_seq:,}",
            condition,
        )
        rows.append(
            {
                "consumer": each.name,
                "num_ack_pending": each.num_ack_pending,
                "num_redelivered": each.num_redelivered,
                "num_pending": each.num_pending,
                "num_waiting": each.num_waiting,
                "ack_floor": each.ack_floor.stream_seq,
                "paused": each.paused,
                "pinned": pinned,
            }
        )
    session.output.show(rows, table)


@online(
    STREAM,
    click.argument("consumer", required=False),
    click.option("--defaults", is_flag=True, hidden=True, expose_value=False),  # it never asks here
    *SETTINGS,
)
async def create(
    session: Session,
    stream: str,
    consumer: str | None,
    file: Path | None,
    **given: Any,
) -> None:
    """Create a consumer of a stream.

    \b
    headrace consumer create ORDERS billing
    headrace consumer create ORDERS returns --filter 'orders.returned' --wait 2m --max-deliver 5
    headrace consumer create ORDERS worker --pinned-groups main

    It is pulled from, unless --target says where to push.
    """
    config = config_file(file, ConsumerConfig) if file else ConsumerConfig()
    changes = changes_of(given)
    if consumer:
        changes |= {"name": consumer, "durable_name": consumer}
    elif not config.name and not config.durable_name:
        raise Failure("give the consumer a name")
    made = await session.js.create_consumer(stream, replaced(config, changes))
    found = made.cached_info
    assert found is not None
    session.output.show(to_wire(found), consumer_sheet(found))


@online(STREAM, CONSUMER, *SETTINGS, destroys=True)
async def edit(
    session: Session, stream: str, consumer: str, file: Path | None, **given: Any
) -> None:
    """Change settings of a consumer; what is not named stays."""
    found = await session.js.consumer(stream, consumer)
    before = (await found.info()).config
    config = config_file(file, ConsumerConfig) if file else before
    names = {"name": before.name, "durable_name": before.durable_name}
    after = replaced(config, {**changes_of(given), **names})
    changed = differences(before, after)
    if not changed.rows:
        raise Failure(
            "nothing to change; give settings such as --max-pending 500, or --config FILE"
        )
    if session.output.is_text:
        session.output.show(None, changed)
    what = f"change consumer {consumer} of stream {stream} so"
    if may_go_on(session.output, what):
        info = await found.update(after)
        session.output.show(to_wire(info), consumer_sheet(info))


@online(STREAM, CONSUMER, click.argument("new"), *SETTINGS)
async def copy(
    session: Session, stream: str, consumer: str, new: str, file: Path | None, **given: Any
) -> None:
    """Create a consumer with the settings of another; it begins where those say, not where that one is.

    \b
    headrace consumer copy ORDERS billing audit --deliver new
    """
    if new == consumer:
        raise Failure("a consumer cannot be copied to itself; give the copy another name", status=2)
    origin = await (await session.js.consumer(stream, consumer)).info()
    config = config_file(file, ConsumerConfig) if file else origin.config
    durable = new if origin.config.durable_name else ""
    changes = {"name": new, "durable_name": durable, **changes_of(given)}
    made = await session.js.create_consumer(stream, replaced(config, changes))
    found = made.cached_info
    assert found is not None
    session.output.show(to_wire(found), consumer_sheet(found))


@online(STREAM, CONSUMER, click.argument("until"))
async def pause(session: Session, stream: str, consumer: str, until: str) -> None:
    """Deliver nothing UNTIL a time, or for a duration.

    \b
    headrace consumer pause ORDERS billing 30m
    headrace consumer pause ORDERS billing 2027-01-01T00:00:00Z
    """
    found = await session.js.consumer(stream, consumer)
    moment = _later(until)
    answer = await found.pause(moment)
    when = moment.strftime("%Y-%m-%d %H:%M:%S UTC")
    session.output.show(
        to_wire(answer), f"consumer {consumer} of stream {stream} pauses until {when}"
    )


def _later(text: str) -> datetime:
    """A time to come. Raises Failure."""
    now = datetime.now(UTC)
    try:
        return now + timedelta(seconds=parse_duration(text))
    except ValueError:
        pass  # it is a date, then
    try:
        moment = parse_moment(text, now)
    except ValueError:
        raise Failure(
            f"{text!r} is not a time to come; accepted: 30m, 2h, 2027-01-01T00:00:00Z"
        ) from None
    if moment <= now:
        raise Failure(f"{text} is over already")
    return moment.astimezone(UTC)


@online(STREAM, CONSUMER)
async def resume(session: Session, stream: str, consumer: str) -> None:
    """Deliver again."""
    answer = await (await session.js.consumer(stream, consumer)).resume()
    session.output.show(to_wire(answer), f"consumer {consumer} of stream {stream} delivers again")


@online(STREAM, CONSUMER, click.argument("group"), destroys=True)
async def unpin(session: Session, stream: str, consumer: str, group: str) -> None:
    """Let go of the pinned client of GROUP; the next to pull is pinned instead."""
    found = await session.js.consumer(stream, consumer)
    info = await found.info()
    groups = {each.group: each.pinned_client_id for each in info.priority_groups}
    if group not in groups and group not in info.config.priority_groups:
        there = ", ".join(info.config.priority_groups) or "none"
        raise Failure(f"consumer {consumer} has no priority group {group!r}; there are: {there}")
    who = groups.get(group) or "nobody so far"
    what = f"unpin {who} of group {group} of consumer {consumer}"
    if may_go_on(session.output, what):
        await found.unpin(group)
        document = {"group": group, "unpinned": groups.get(group, "")}
        session.output.show(
            document, f"unpinned {who}; the next client of {group} to pull is pinned"
        )


@online(
    STREAM,
    CONSUMER,
    click.argument("sequence", type=click.IntRange(0), default=0),
    destroys=True,
)
async def reset(session: Session, stream: str, consumer: str, sequence: int) -> None:
    """Deliver from SEQUENCE on again; without it, from the first message that is not acknowledged."""
    found = await session.js.consumer(stream, consumer)
    origin = f"sequence {sequence:,}" if sequence else "the first message not acknowledged"
    what = f"reset consumer {consumer} of stream {stream} to {origin}"
    if may_go_on(session.output, what):
        info = await found.reset(sequence)
        text = f"consumer {consumer} delivers from {origin} on; {counted(info.num_pending, 'message')} left"
        session.output.show(to_wire(info), text)


@online(STREAM, CONSUMER, destroys=True)
async def rm(session: Session, stream: str, consumer: str) -> None:
    """Delete a consumer; the messages stay in the stream."""
    info = await (await session.js.consumer(stream, consumer)).info()
    what = (
        f"delete consumer {consumer} of stream {stream} with "
        f"{counted(info.num_ack_pending, 'message')} without an answer and {info.num_pending:,} left"
    )
    if may_go_on(session.output, what):
        await session.js.delete_consumer(stream, consumer)
        document = {"stream": stream, "deleted": consumer}
        session.output.show(document, f"deleted consumer {consumer} of stream {stream}")
