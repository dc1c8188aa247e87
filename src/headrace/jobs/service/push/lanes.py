"""Choice of the process that pushes to a consumer: one at a time, so that its limits hold for all of them.

Each process that pushes says every few seconds that it is there. A consumer belongs to one of those, by a
number that all of them work out alike; it goes to another one when the process that has it has given it back,
has ended, as one beside it can tell, or has said nothing for ``PUSH_NODE_S``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ... import limits
from ...errors import JobsError
from ...store import Tx
from ..definitions.consumers import DEFINITIONS

__all__ = [
    "Beaten",
    "TakenError",
    "beat",
    "give_back",
    "is_held",
    "leave",
    "nodes_of",
    "owner",
    "take",
]


class TakenError(JobsError):
    """Refusal, as another process pushes to this consumer."""

    def __init__(self) -> None:
        super().__init__(409, "taken", "another process pushes to this consumer")


def owner(consumer_seq: int, nodes: Collection[str]) -> str:
    """Choose which of ``nodes`` a consumer belongs to: one that comes or goes moves only what it has to."""
    return max(
        nodes,
        key=lambda node: hashlib.blake2b(f"{node} {consumer_seq}".encode(), digest_size=8).digest(),
    )


@dataclass(frozen=True, slots=True)
class Beaten:
    """Processes that push from now on, in order, and whether this one was known to be there."""

    nodes: list[str]
    was_known: bool


def beat(
    tx: Tx, node: str, *, leaving: bool, has_ended: Callable[[str], bool] = lambda _: False
) -> Beaten:
    """Say that ``node`` is there; one that is ``leaving`` pushes no more, and keeps what it has.

    What a process has that ``has_ended`` for certain is free at once.
    """
    now = tx.now_us()
    expires = now + round(limits.PUSH_NODE_S * 1e6)
    known = tx.one("get_push_node", node=node)
    tx.run("put_push_node", node=node, expires=expires, leaving=int(leaving))
    gone = tx.run("forget_push_nodes", now=now)
    for row in tx.all("list_push_nodes"):
        if row["node"] != node and has_ended(row["node"]):
            leave(tx, row["node"])
    if gone or known is None or bool(known["leaving"]) != leaving:
        tx.ring([DEFINITIONS])  # the others share out anew
    return Beaten(nodes_of(tx), known is not None)


def nodes_of(tx: Tx) -> list[str]:
    """List who pushes, in order, those that are leaving left out."""
    return sorted(row["node"] for row in tx.all("list_push_nodes") if not row["leaving"])


def take(tx: Tx, node: str, consumers: Sequence[int]) -> set[int]:
    """Take these, unless a process has them that is there. Returns those that ``node`` has now."""
    if not consumers:
        return set()
    seqs = json.dumps(sorted(consumers))
    tx.run("take_push_lanes", node=node, seqs=seqs)
    return {row["consumer_seq"] for row in tx.all("push_lanes_of", node=node, seqs=seqs)}


def is_held(tx: Tx, node: str, consumer_seq: int) -> bool:
    """Whether ``node`` has the consumer: it may have been taken for one that is gone."""
    row = tx.one("get_push_lane", consumer_seq=consumer_seq)
    return row is not None and row["node"] == node


def give_back(tx: Tx, node: str, consumers: Sequence[int]) -> None:
    """Let others have these: no call to them is in progress any more."""
    if tx.run("drop_push_lanes", node=node, seqs=json.dumps(sorted(consumers))):
        tx.ring([DEFINITIONS])


def leave(tx: Tx, node: str) -> None:
    """``node`` pushes no more, and has nothing in progress."""
    tx.run("drop_push_node", node=node)
    tx.run("drop_all_push_lanes", node=node)
    tx.ring([DEFINITIONS])
