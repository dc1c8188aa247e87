"""Priority groups where the specification is stricter than nats-server: what is asked for, and handovers."""

from __future__ import annotations

from typing import Any

from conformance.scenarios.consumers import create
from conformance.scenarios.priorities import INFO, LISTEN, MS, UNPIN, A, policy, say
from conformance.steps import ack, api, ask, pull, pull_pinned, quiet, stream
from conformance.table import Scenario, Table

GROUP = {"priority_groups": ["A"]}
EXPLICIT = {"ack_policy": "explicit"}


def asked(title: str, config: dict[str, Any], **request: Any) -> Scenario:
    """A consumer with a priority policy: created or refused, and what it is then."""
    steps = [stream(subjects=["a.>"]), create(config, **request), api(INFO)]
    return Scenario(f"groups: {title}", steps)


def changed(title: str, before: dict[str, Any], after: dict[str, Any]) -> Scenario:
    steps = [
        stream(subjects=["a.>"]),
        create({**EXPLICIT, **before}),
        create({**EXPLICIT, **after}),
    ]
    return Scenario(f"groups: {title}", [*steps, api(INFO)])


def both(title: str, config: dict[str, Any], **request: Any) -> Table:
    return [
        asked(f"{title}, {name}", {"priority_policy": name, **GROUP, **config}, **request)
        for name in ("overflow", "pinned_client")
    ]


PINNED = {"priority_policy": "pinned_client", **GROUP}
OVERFLOW = {"priority_policy": "overflow", **GROUP}
PRIORITIZED = {"priority_policy": "prioritized", **GROUP}

CONFIGURATION: Table = [
    *both("explicit acks", EXPLICIT),
    *both("no ack policy", {}),
    *both("ack policy none", {"ack_policy": "none"}),
    *both("ack policy all", {"ack_policy": "all"}),
    *both("pedantic without explicit acks", {}, pedantic=True),
    *both("pedantic with explicit acks", {**EXPLICIT, "max_deliver": -1}, pedantic=True),
    asked("prioritized with any ack policy", PRIORITIZED),
    asked("a policy without groups", {**EXPLICIT, "priority_policy": "overflow"}),
    asked("an empty group", {**EXPLICIT, **OVERFLOW, "priority_groups": [""]}),
    asked("a group with a blank", {**EXPLICIT, **OVERFLOW, "priority_groups": ["a b"]}),
    asked("a group too long", {**EXPLICIT, **OVERFLOW, "priority_groups": ["x" * 17]}),
    asked("a group with every sign", {**EXPLICIT, **OVERFLOW, "priority_groups": ["aZ09/_=-"]}),
    asked("several", {**EXPLICIT, **OVERFLOW, "priority_groups": ["A", "B"]}),
    asked("without a policy", {**EXPLICIT, **GROUP}),
    asked("policy none with groups", {**EXPLICIT, **GROUP, "priority_policy": "none"}),
    asked("a timeout without a policy", {**EXPLICIT, "priority_timeout": 5_000 * MS}),
    asked("a timeout on overflow", {**EXPLICIT, **OVERFLOW, "priority_timeout": 5_000 * MS}),
    asked("a timeout below zero", {**EXPLICIT, **PINNED, "priority_timeout": -5}),
    asked(
        "pedantic with a timeout below zero",
        {**EXPLICIT, **PINNED, "priority_timeout": -5},
        pedantic=True,
    ),
    asked("an unknown policy", {**EXPLICIT, **GROUP, "priority_policy": "weird"}),
    changed("the timeout may be updated", {**PINNED}, {**PINNED, "priority_timeout": 7_000 * MS}),
    changed("another policy", PINNED, OVERFLOW),
    changed("another group", PINNED, {**PINNED, "priority_groups": ["B"]}),
    changed("a policy later", {}, PINNED),
    changed("no policy any more", PINNED, {}),
]

HANDOVERS: Table = [
    Scenario(
        "handover: messages in flight are finished first",
        [
            *policy("pinned_client", 2),
            pull({**A, "batch": 2}, 2),
            ask(A),
            api(UNPIN, {"group": "A"}),
            *say("a.x"),
            ack(0),
            ack(1),
            quiet(0.15),
        ],
    ),
    Scenario(
        "handover: the client before is told at once",
        [
            *policy("pinned_client", 2),
            pull(A, 1),
            api(UNPIN, {"group": "A"}),
            pull_pinned(A),
        ],
    ),
    Scenario(
        "handover: every waiting request of the client before ends",
        [
            *policy("pinned_client"),
            ask({**A, "batch": 5}),
            ask({**A, "batch": 5}),
            *say("a.x"),
            api(UNPIN, {"group": "A"}),
            *say("a.x"),
            ack(0),
            quiet(),
        ],
    ),
    Scenario(
        "handover: the ack wait ends it",
        [
            *policy("pinned_client", 2, ack_wait=750 * MS),
            pull(A, 1, after=0),
            api(UNPIN, {"group": "A"}),
            pull({**A, "batch": 2, "idle_heartbeat": 300 * MS}, 4),
        ],
    ),
    Scenario(
        "pinned: the advisories name the client",
        [
            *policy("pinned_client", 1),
            *LISTEN,
            pull(A, 1),
            api(UNPIN, {"group": "A"}),
            quiet(on="b"),
        ],
    ),
]

TABLE: Table = [*CONFIGURATION, *HANDOVERS]
