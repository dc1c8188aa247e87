"""The configuration of a consumer as it is typed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from ...api.times import format_time
from ..shared.configuration import key_values
from ..shared.errors import Failure
from ..shared.units import DURATION, SIZE, parse_duration, parse_moment
from ..shared.verbs import Declare

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
