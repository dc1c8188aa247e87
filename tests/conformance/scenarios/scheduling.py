"""Message schedules: a stored message that makes the stream publish to itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from conformance.driver import Session, Step
from conformance.steps import api, consumer, publish, pull, quiet, stream
from conformance.table import Scenario, Table

INFO = "STREAM.INFO.S"
_PAST = "@at 2020-01-01T00:00:00Z"
_FUTURE = "@at 2100-01-01T00:00:00Z"


def schedule(pattern: str, subject: str = "s.a", target: str = "t.a", **more: str) -> Step:
    headers = {"Nats-Schedule": pattern, "Nats-Schedule-Target": target}
    headers.update({key.replace("_", "-"): value for key, value in more.items()})
    return publish(subject, "work", {key: value for key, value in headers.items() if value != "-"})


def soon(milliseconds: int) -> Step:
    """A schedule for so many milliseconds from now."""

    def step(session: Session) -> None:
        moment = datetime.now(UTC) + timedelta(milliseconds=milliseconds)
        schedule(f"@at {moment.isoformat().replace('+00:00', 'Z')}")(session)

    return step


def at_the_full_second() -> Step:
    """Wait until a second has just begun: repeating schedules fire on full seconds."""

    def step(session: Session) -> None:
        left = 1.05 - datetime.now(UTC).microsecond / 1e6
        session.read_until_quiet("a", left if left > 0.05 else left + 1)

    return step


def scheduling(**config: Any) -> Step:
    settings: dict[str, Any] = {"subjects": ["s.*", "t.*"], "allow_msg_schedules": True}
    return stream(**{**settings, **config})


def everything(frames: int) -> list[Step]:
    return [
        api(INFO, {"subjects_filter": ">"}),
        consumer(ack_policy="none"),
        pull({"batch": 10, "no_wait": True}, frames),
    ]


_NAMED: list[tuple[str, dict[str, Any]]] = [
    ("A", {}),
    ("B", {"discard": "new"}),
    ("C", {"deny_purge": True}),
    ("D", {"pedantic": True}),
    ("E", {"pedantic": True, "allow_rollup_hdrs": True}),
]

TABLE: Table = [
    Scenario(
        "schedules: at a time that has passed, and at one that comes",
        [
            scheduling(),
            schedule(_PAST, subject="s.b", target="t.b", K="v"),
            soon(700),
            api(INFO),
            quiet(1.2),
            *everything(3),
        ],
    ),
    Scenario(
        "schedules: again and again, until replaced by a message",
        [
            scheduling(),
            at_the_full_second(),
            schedule("@every 1s", Nats_Schedule_Rollup="sub"),
            quiet(1.45),
            publish("s.a", "over"),
            quiet(0.9),
            *everything(4),
        ],
    ),
    Scenario(
        "schedules: with the content of another subject, a TTL and a roll-up",
        [
            scheduling(allow_msg_ttl=True),
            publish("t.source", "latest", {"K": "v", "Nats-Msg-Id": "one"}),
            publish("t.a", "old"),
            schedule(
                _PAST,
                Nats_Schedule_Source="t.source",
                Nats_Schedule_TTL="1h",
                Nats_Schedule_Rollup="sub",
            ),
            quiet(0.6),
            *everything(3),
        ],
    ),
    Scenario(
        "schedules: replaced, and ended by hand",
        [
            scheduling(),
            schedule(_FUTURE),
            schedule(_PAST, target="t.b"),
            schedule(_FUTURE, subject="s.b"),
            publish("t.c", "x", {"Nats-Schedule-Next": "purge", "Nats-Scheduler": "s.b"}),
            publish("t.c", "x", {"Nats-Schedule-Next": "purge", "Nats-Scheduler": "t.c"}),
            publish("t.d", "x", {"Nats-Schedule-Next": "purge", "Nats-Scheduler": "t.c"}),
            publish("t.d", "x", {"Nats-Schedule-Next": "purge", "Nats-Scheduler": "s.none"}),
            publish("t.d", "x", {"Nats-Schedule-Next": "purge"}),
            publish("t.d", "x", {"Nats-Schedule-Next": "later", "Nats-Scheduler": "s.b"}),
            publish("t.d", "x", {"Nats-Scheduler": "s.b"}),
            quiet(0.6),
            api(INFO, {"subjects_filter": ">"}),
        ],
    ),
    Scenario(
        "schedules: patterns",
        [
            scheduling(),
            *[
                schedule(pattern, subject=f"s.{number}")
                for number, pattern in enumerate(
                    [
                        "@at 2100-01-01T00:00:00.5+02:00",
                        "@at 2100-01-01",
                        "@at x",
                        "@at",
                        "@every 1m30s",
                        "@every 999ms",
                        "@every x",
                        "@every -5s",
                        "@hourly",
                        "@daily",
                        "@midnight",
                        "@weekly",
                        "@monthly",
                        "@yearly",
                        "@annually",
                        "@nonsense",
                        "Hourly",
                        "0 0 12 * * *",
                        "0 */5 8-18 * * mon-fri",
                        "0 0 0 29 2 ?",
                        "0 0 0 30 2 *",
                        "0 0 0 1,15 jan,JUL *",
                        "* * * * *",
                        "60 * * * * *",
                        "5-1 * * * * *",
                        "*/0 * * * * *",
                        "0 0 0 1 * 7",
                        "0 0 0 0 * *",
                        "1-2-3 * * * * *",
                        "1/2/3 * * * * *",
                        "x * * * * *",
                    ]
                )
            ],
        ],
    ),
    Scenario(
        "schedules: time zones",
        [
            scheduling(),
            schedule("0 0 12 * * *", Nats_Schedule_Time_Zone="Europe/Berlin"),
            schedule("0 0 12 * * *", subject="s.b", Nats_Schedule_Time_Zone="Nowhere/Land"),
            schedule("0 0 12 * * *", subject="s.c", Nats_Schedule_Time_Zone="UTC"),
            schedule("0 0 12 * * *", subject="s.d", Nats_Schedule_Time_Zone=""),
            schedule("@daily", subject="s.e", Nats_Schedule_Time_Zone="America/New_York"),
            schedule(_FUTURE, subject="s.f", Nats_Schedule_Time_Zone="UTC"),
            schedule("@every 5s", subject="s.g", Nats_Schedule_Time_Zone="UTC"),
        ],
    ),
    Scenario(
        "schedules: targets, sources, lifetimes",
        [
            scheduling(),
            schedule(_FUTURE, target="-"),
            schedule(_FUTURE, target="s.a"),
            schedule(_FUTURE, target="elsewhere"),
            schedule(_FUTURE, target="t.*"),
            schedule(_FUTURE, target="t..a"),
            schedule(_FUTURE, Nats_Schedule_Source="t.a"),
            schedule(_FUTURE, Nats_Schedule_Source="s.a"),
            schedule(_FUTURE, Nats_Schedule_Source="t.*"),
            schedule(_FUTURE, Nats_Schedule_Source="elsewhere"),
            schedule(_FUTURE, Nats_Schedule_TTL="5"),
            schedule(_FUTURE, Nats_Schedule_TTL="x"),
            schedule(_FUTURE, Nats_Schedule_Rollup="all"),
            schedule(_FUTURE, Nats_Rollup="all"),
            schedule(_FUTURE, Nats_Rollup="sub"),
            publish("s.a", "x", {"Nats-Schedule-Target": "t.a"}),
            api(INFO),
        ],
    ),
    Scenario(
        "schedules: on a stream that has none",
        [
            scheduling(allow_msg_schedules=False),
            schedule(_FUTURE),
            schedule("x"),
            publish("s.a", "x", {"Nats-Schedule-Next": "purge", "Nats-Scheduler": "s.b"}),
        ],
    ),
    Scenario(
        "schedules: configurations",
        [
            *[
                api(f"STREAM.CREATE.{name}", {"name": name, "allow_msg_schedules": True, **config})
                for name, config in _NAMED
            ],
            api("STREAM.UPDATE.A", {"name": "A"}),
        ],
    ),
]
