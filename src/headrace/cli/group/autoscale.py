"""Keep the number of members of an elastic group right for what comes."""

from __future__ import annotations

import math
from contextlib import aclosing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import click

from ...groups import ElasticGroup
from ...groups.autoscale import Decision, Policy, Step, autoscale, pool_of
from ...groups.server.presence import who_is_there
from ...quantities import counted
from ..shared.output import one_of_many
from ..shared.verbs import Declare
from .text import clock_text

if TYPE_CHECKING:
    from ...client import JetStream

_POLICY: Final = Policy()
_NAMES: Final = 1000  # of a pattern, where --max does not say

AUTOSCALE_OPTIONS: Final[tuple[Declare, ...]] = (
    click.option(
        "--members",
        required=True,
        metavar="NAMES",
        help="who may become a member, in this order: names with commas between, or a pattern: w-{} is "
        "w-0, w-1, …",
    ),
    click.option(
        "--min", type=int, default=_POLICY.minimum, metavar="N", help="fewest members (1)"
    ),
    click.option("--max", type=int, default=0, metavar="N", help="most members (the partitions)"),
    click.option(
        "--target-seconds",
        type=float,
        default=_POLICY.target_seconds,
        metavar="S",
        help=f"how many seconds of work may wait ({_POLICY.target_seconds:g})",
    ),
    click.option("--every", type=float, default=5.0, metavar="S", help="seconds between looks (5)"),
    click.option(
        "--up-looks",
        type=int,
        default=_POLICY.up_looks,
        metavar="N",
        help=f"looks in a row too far behind before it grows ({_POLICY.up_looks})",
    ),
    click.option(
        "--down-looks",
        type=int,
        default=_POLICY.down_looks,
        metavar="N",
        help=f"looks in a row hardly behind before it shrinks ({_POLICY.down_looks})",
    ),
    click.option(
        "--cooldown",
        type=float,
        default=_POLICY.cooldown_seconds,
        metavar="S",
        help=f"seconds without a change after a change ({_POLICY.cooldown_seconds:g})",
    ),
    click.option(
        "--proportional",
        is_flag=True,
        help="grow and shrink by as many as the load asks for, not by one",
    ),
    click.option(
        "--only-live",
        is_flag=True,
        help="add only names under which an instance has joined (one of Headrace; others do not say so)",
    ),
    click.option("--dry-run", is_flag=True, help="say what would be done, and why"),
)


async def autoscale_command(js: JetStream, args: SimpleNamespace) -> int:
    """Look, decide, change, and say so, until Ctrl-C or until the group is deleted.

    Raises GroupNotFoundError, GroupRecordError, GroupConfigurationError.
    """

    async def live() -> set[str]:
        found = await who_is_there(js, ElasticGroup, args.stream, args.group)
        return {each.member for each in found}

    policy = Policy(
        minimum=args.min,
        maximum=args.max,
        target_seconds=args.target_seconds,
        up_looks=args.up_looks,
        down_looks=args.down_looks,
        cooldown_seconds=args.cooldown,
        step="proportional" if args.proportional else "one",
    )
    steps = autoscale(
        js,
        args.stream,
        args.group,
        policy,
        pool_of(args.members.split(","), args.max or _NAMES),
        every=args.every,
        dry_run=args.dry_run,
        live=live if args.only_live else None,
    )
    said = ""
    async with aclosing(steps):
        async for step in steps:
            if args.form != "text":
                print(one_of_many(document(step), args.form), flush=True)
                continue
            text = sentence(step)
            if text.partition(" ")[2] != said:  # the same at another time is no news
                said = text.partition(" ")[2]
                print(text, flush=True)
    return 0


def sentence(step: Step) -> str:
    """A step for people."""
    decision = step.decision
    if decision is None:
        return f"- no look: {step.problem}"
    members = counted(len(decision.before), "member")
    words = f"{clock_text(decision.at_ns)} {members}: {'; '.join(decision.reasons)}"
    if decision.action == "hold":
        return words
    changes = [f"+{name}" for name in decision.added] + [f"-{name}" for name in decision.dropped]
    done = "done" if step.applied else step.problem
    return f"{words} → {len(decision.members)} ({' '.join(changes)}): {done}"


def document(step: Step) -> dict[str, Any]:
    """A step for programs."""
    decision = step.decision
    if decision is None:
        return {"action": "none", "problem": step.problem}
    return {
        "at": clock_text(decision.at_ns),
        "action": decision.action,
        "applied": step.applied,
        "problem": step.problem,
        "members": list(decision.before),
        "proposed": list(decision.members),
        "reasons": list(decision.reasons),
        **_numbers(decision),
    }


def _numbers(decision: Decision) -> dict[str, Any]:
    behind = decision.behind_s
    return {
        "lag": decision.lag,
        "arrived_per_second": decision.arrived,
        "handled_per_second": decision.handled,
        "behind_seconds": None if behind is None or math.isinf(behind) else behind,
    }
