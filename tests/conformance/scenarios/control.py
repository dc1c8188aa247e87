"""Steering consumers: pause, reset; and what is told about them to those who listen."""

from __future__ import annotations

from conformance.driver import Step
from conformance.scenarios.pulls import ready
from conformance.steps import ack, api, consumer, drain, publish_all, pull, quiet, raw, stream
from conformance.table import Scenario, Table

SECOND = 1_000_000_000
INFO = "CONSUMER.INFO.S.C"
PAUSE = "CONSUMER.PAUSE.S.C"
RESET = "CONSUMER.RESET.S.C"
FAR = {"pause_until": "2099-01-01T00:00:00Z"}
PAST = {"pause_until": "2001-01-01T00:00:00Z"}


def listen(*subjects: str) -> list[Step]:
    """Subscribe on a connection of its own, so that answers and advisories do not mix."""
    lines = "".join(f"SUB {subject} {sid}\n" for sid, subject in enumerate(subjects, 9000))
    return [raw(lines, on="b"), drain(on="b")]


TABLE: Table = [
    Scenario("pause", [*ready(2), api(PAUSE, FAR), pull("1", 0), api(INFO)]),
    Scenario("pause in the past", [*ready(2), api(PAUSE, PAST), pull("1", 1), api(INFO)]),
    Scenario(
        "pause and resume",
        [*ready(2), api(PAUSE, FAR), api(PAUSE), pull("1", 1), api(INFO)],
    ),
    Scenario(
        "heartbeats and expiry go on in a pause",
        [
            *ready(1),
            api(PAUSE, FAR),
            pull({"batch": 1, "expires": SECOND // 2, "idle_heartbeat": SECOND // 5}, 3),
        ],
    ),
    Scenario("pause from the start", [*ready(2, pause_until="2099-01-01T00:00:00Z"), api(INFO)]),
    Scenario(
        "an update does not change a pause",
        [*ready(2), api(PAUSE, FAR), consumer(ack_wait=SECOND), api(INFO)],
    ),
    Scenario("pause what is not there", [stream(subjects=["a"]), api(PAUSE, FAR)]),
    Scenario("pause until nonsense", [*ready(0), api(PAUSE, {"until": "x"})]),
    Scenario("acks count in a pause", [*ready(2), pull("1", 1), api(PAUSE, FAR), ack(0)]),
    Scenario(
        "reset to the ack floor",
        [*ready(4), pull("3", 3), ack(0), api(RESET), pull("2", 2), api(INFO)],
    ),
    Scenario(
        "reset to a sequence",
        [*ready(4), pull("4", 4), api(RESET, {"seq": 2}), api(INFO), pull("2", 2), api(INFO)],
    ),
    Scenario(
        "acks behind a reset",
        [*ready(5), pull("5", 5), api(RESET, {"seq": 2}), ack(0), ack(4, sync=False), quiet()],
    ),
    Scenario(
        "reset beyond the end",
        [*ready(2), api(RESET, {"seq": 4}), publish_all("a.x", "a.x"), pull("1", 1), api(INFO)],
    ),
    Scenario(
        "reset with a start sequence",
        [
            *ready(5, deliver_policy="by_start_sequence", opt_start_seq=3),
            api(RESET, {"seq": 2}),
            api(RESET, {"seq": 3}),
            api(RESET, {"seq": 5}),
        ],
    ),
    Scenario(
        "reset of a consumer of new messages",
        [*ready(3, deliver_policy="new"), api(RESET, {"seq": 2}), api(RESET)],
    ),
    Scenario("reset with nonsense", [*ready(3), api(RESET, {"sequence": 2})]),
    Scenario(
        "advisories of a life",
        [
            *listen("$JS.EVENT.ADVISORY.STREAM.>", "$JS.EVENT.ADVISORY.CONSUMER.>"),
            *ready(1),
            api("CONSUMER.DELETE.S.C"),
            api("STREAM.DELETE.S"),
            quiet(on="b"),
        ],
    ),
    Scenario(
        "advisories of deliveries",
        [
            *ready(3, max_deliver=1),
            pull("3", 3),
            *listen("$JS.EVENT.ADVISORY.CONSUMER.>"),
            ack(1, "+TERM broken"),
            ack(0, "-NAK"),
            pull({"no_wait": True}, 1),
            quiet(on="b"),
        ],
    ),
    Scenario(
        "advisories of a pause",
        [
            *ready(0),
            *listen("$JS.EVENT.ADVISORY.CONSUMER.>"),
            api(PAUSE, FAR),
            api(PAUSE),
            quiet(on="b"),
        ],
    ),
]
