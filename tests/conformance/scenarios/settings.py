"""Settings of streams: values out of the ordinary, what goes together, what an update may change."""

from __future__ import annotations

import itertools
from typing import Any

from conformance.driver import Session, Step
from conformance.steps import api, publish, publish_all, stream
from conformance.table import Scenario, Table

INFO = "STREAM.INFO.S"
_SECOND = 1_000_000_000
_MS = 1_000_000
_numbers = itertools.count(1)


def _create(**config: Any) -> Step:
    """Create a stream, record the reply, and delete it again without recording.

    Each has a name of its own: nats-server may still remove the files of the one before.
    """
    name = config.pop("name", None) or f"S{next(_numbers)}"

    def step(session: Session) -> None:
        api(f"STREAM.CREATE.{name}", {"name": name, **config})(session)
        inbox = session.inbox("set-up")
        session.publish("set-up", f"$JS.API.STREAM.DELETE.{name}".encode(), inbox, b"", b"")
        session.wire("set-up").frame()

    return step


def _update(**config: Any) -> Step:
    return api("STREAM.UPDATE.S", {"name": "S", "subjects": ["a"], **config})


_NAMED: list[tuple[str, dict[str, Any]]] = [
    ("A", {}),
    ("B", {"max_ack_pending": 6}),
    ("C", {"max_ack_pending": 5, "inactive_threshold": 61 * _SECOND}),
    ("D", {"durable_name": "D", "max_ack_pending": 2}),
    ("E", {"ack_policy": "none"}),
]

TABLE: Table = [
    Scenario(
        "settings: enumerations",
        [
            _create(compression="s2"),
            _create(compression="none"),
            _create(compression="zip"),
            _create(compression="s2", storage="memory"),
            _create(retention="nonsense"),
            _create(discard="nonsense"),
            _create(storage="nonsense"),
            _create(persist_mode="default"),
            _create(persist_mode="async"),
            _create(persist_mode="nonsense"),
            _create(persist_mode="async", storage="memory"),
            _create(persist_mode="async", allow_atomic=True),
        ],
    ),
    Scenario(
        "settings: numbers out of range",
        [
            _create(max_msgs=-5, max_bytes=-5, max_msg_size=-5, max_consumers=-5),
            _create(max_msgs_per_subject=-5, max_age=-1),
            _create(max_age=99 * _MS),
            _create(max_age=100 * _MS),
            _create(duplicate_window=-1),
            _create(duplicate_window=99 * _MS),
            _create(max_age=_SECOND, duplicate_window=2 * _SECOND),
            _create(num_replicas=-1),
            _create(num_replicas=3),
            _create(num_replicas=6),
            _create(first_seq=100),
        ],
    ),
    Scenario(
        "settings: pedantic requests",
        [
            _create(pedantic=True),
            _create(pedantic=True, max_msgs=-2),
            _create(pedantic=True, max_msgs_per_subject=-2),
            _create(pedantic=True, max_bytes=-2),
            _create(pedantic=True, max_msg_size=-2),
            _create(pedantic=True, max_consumers=-2),
            _create(pedantic=True, max_age=60 * _SECOND),
            _create(pedantic=True, republish={"dest": "out.>"}),
        ],
    ),
    Scenario(
        "settings: subjects",
        [
            _create(subjects=["a", "a"]),
            _create(subjects=["a.*", "a.x"]),
            _create(subjects=["a..b"]),
            _create(subjects=["a b"]),
            _create(subjects=[""]),
            _create(subjects=[">"]),
            _create(subjects=["$JS.>"]),
            _create(subjects=["$JS.API.X"]),
            _create(subjects=["$JSC.X"]),
            _create(subjects=["$NRG.*"]),
            _create(subjects=["$KV.x.>", "$O.x.C.>"]),
            _create(subjects=["$SYS.>"]),
            _create(subjects=["$SYS.ACCOUNT.*.CONNECT"]),
            _create(subjects=[]),
        ],
    ),
    Scenario(
        "settings: names and texts",
        [
            _create(description="d" * 4097),
            _create(metadata={"k": "v" * (128 * 1024)}),
            _create(metadata={"k": "v", "_nats.ver": "1", "_nats.mine": "x"}),
            _create(placement={}),
            _create(placement={"cluster": "C", "tags": ["t"]}),
            _create(placement={"preferred": "X"}),
            _create(consumer_limits={"max_ack_pending": 5, "inactive_threshold": _SECOND}),
        ],
    ),
    Scenario(
        "settings: discard and roll-ups",
        [
            _create(discard_new_per_subject=True),
            _create(discard="new", discard_new_per_subject=True),
            _create(discard="new", discard_new_per_subject=True, max_msgs_per_subject=1),
            _create(deny_purge=True, allow_rollup_hdrs=True),
            _create(sealed=True),
        ],
    ),
    Scenario(
        "settings: what an update may not change",
        [
            stream(subjects=["a"], deny_delete=True, deny_purge=True, metadata={"k": "v"}),
            _update(),
            _update(deny_delete=True),
            _update(deny_delete=True, deny_purge=True, storage="memory"),
            _update(deny_delete=True, deny_purge=True, retention="workqueue"),
            _update(deny_delete=True, deny_purge=True, num_replicas=3),
            _update(deny_delete=True, deny_purge=True, persist_mode="async"),
            _update(deny_delete=True, deny_purge=True, mirror={"name": "T"}),
            _update(deny_delete=True, deny_purge=True, max_msgs=1, metadata={"l": "w"}),
            _update(deny_delete=True, deny_purge=True, first_seq=5, compression="s2"),
            api(INFO),
        ],
    ),
    Scenario(
        "settings: a sealed stream",
        [
            stream(subjects=["a"], max_age=60 * _SECOND, duplicate_window=_SECOND),
            publish_all("a"),
            _update(sealed=True, max_age=60 * _SECOND, duplicate_window=_SECOND),
            publish("a", "x"),
            api("STREAM.MSG.DELETE.S", {"seq": 1}),
            api("STREAM.PURGE.S"),
            _update(),
            _update(sealed=True),
            api("STREAM.MSG.GET.S", {"seq": 1, "no_hdr": True}),
            api("STREAM.DELETE.S"),
        ],
    ),
    Scenario(
        "settings: mirror direct without a mirror",
        [
            api("STREAM.CREATE.M", {"name": "M", "mirror_direct": True}),
            stream(subjects=["a"]),
            _update(mirror_direct=True),
        ],
    ),
    Scenario(
        "settings: limits for consumers",
        [
            stream(
                subjects=["a"],
                consumer_limits={"max_ack_pending": 5, "inactive_threshold": 60 * _SECOND},
            ),
            *[
                api(
                    f"CONSUMER.CREATE.S.{name}",
                    {
                        "stream_name": "S",
                        "config": {"name": name, "ack_policy": "explicit", **more},
                    },
                )
                for name, more in _NAMED
            ],
            _update(consumer_limits={"max_ack_pending": 3}),
            _update(consumer_limits={"inactive_threshold": 10 * _SECOND}),
        ],
    ),
    Scenario(
        "settings: the last message id is that of the last message",
        [
            stream(subjects=["a"]),
            publish("a", "x", {"Nats-Msg-Id": "one"}),
            publish("a", "x", {"Nats-Expected-Last-Msg-Id": "one"}),
            publish("a", "x", {"Nats-Expected-Last-Msg-Id": "one"}),
            publish("a", "x", {"Nats-Msg-Id": "two"}),
            publish("a", "x", {"Nats-Msg-Id": "one"}),
            publish("a", "x", {"Nats-Expected-Last-Msg-Id": "two"}),
        ],
    ),
]
