"""Messages with a life of their own, and the markers that tell of the end of a subject."""

from __future__ import annotations

from conformance.steps import api, publish, publish_all, quiet, request, stream
from conformance.table import Scenario, Table

INFO = "STREAM.INFO.S"
GET = "STREAM.MSG.GET.S"
_VALUES = [
    "5",
    "5s",
    "1m30s",
    "1.9s",
    "never",
    "NEVER",
    "0",
    "0s",
    "999ms",
    "-1",
    "-5s",
    "x",
    "5 s",
    "",
]
_SECOND = 1_000_000_000
_MINUTE = 60 * _SECOND

TABLE: Table = [
    Scenario(
        "message TTL: every form of the header",
        [
            stream(subjects=["a"], allow_msg_ttl=True),
            *[publish("a", "x", {"Nats-TTL": value}) for value in _VALUES],
            api(INFO),
        ],
    ),
    Scenario(
        "message TTL: not enabled, every form of the header",
        [
            stream(subjects=["a"]),
            *[publish("a", "x", {"Nats-TTL": value}) for value in _VALUES],
        ],
    ),
    Scenario(
        "message TTL: not enabled and another expectation not met",
        [
            stream(subjects=["a"]),
            publish("a", "x", {"Nats-TTL": "5", "Nats-Expected-Last-Sequence": "9"}),
            publish("a", "x", {"Nats-TTL": "x", "Nats-Expected-Last-Sequence": "9"}),
            publish("a", "x", {"Nats-TTL": "5", "Nats-Expected-Stream": "T"}),
            publish("a", "x", {"Nats-Msg-Id": "one"}),
            publish("a", "x", {"Nats-TTL": "5", "Nats-Msg-Id": "one"}),
            publish("a", "x", {"Nats-TTL": "x", "Nats-Msg-Id": "one"}),
        ],
    ),
    Scenario(
        "message TTL and markers: what goes, what stays, and what tells of it",
        [
            stream(subjects=["a.*"], allow_msg_ttl=True, max_age=_SECOND, duplicate_window=_SECOND),
            stream("T", subjects=["t.*"], allow_msg_ttl=True),
            stream(
                "M", subjects=["m.*"], subject_delete_marker_ttl=_MINUTE, max_msgs_per_subject=1
            ),
            stream("A", subjects=["g.*"], subject_delete_marker_ttl=5 * _SECOND, max_age=_SECOND),
            publish_all("g.one", "g.one", "g.two"),
            publish("a.never", "x", {"Nats-TTL": "never"}),
            publish("a.plain", "x"),
            publish("a.long", "x", {"Nats-TTL": "1h"}),
            publish("t.first", "x", {"Nats-TTL": "1"}),
            publish("t.second", "x"),
            publish("t.third", "x", {"Nats-TTL": "1s"}),
            publish("m.one", "x", {"Nats-TTL": "1"}),
            publish("m.two", "x", {"Nats-TTL": "1"}),
            publish("m.two", "y"),
            publish("m.purged", "", {"Nats-TTL": "1", "KV-Operation": "PURGE"}),
            quiet(1.7),
            api("STREAM.INFO.A", {"subjects_filter": ">"}),
            api("STREAM.MSG.GET.A", {"seq": 4}),
            quiet(0.6),
            api(INFO, {"subjects_filter": ">"}),
            api("STREAM.INFO.T", {"subjects_filter": ">"}),
            api("STREAM.MSG.GET.T", {"seq": 1}),
            publish("t.fourth", "x"),
            api("STREAM.MSG.GET.M", {"last_by_subj": "m.one"}),
            api("STREAM.MSG.GET.M", {"last_by_subj": "m.two"}),
            api("STREAM.MSG.GET.M", {"last_by_subj": "m.purged"}),
            api("STREAM.INFO.M", {"subjects_filter": ">"}),
        ],
    ),
    Scenario(
        "markers: a message lives at least as long as a marker",
        [
            stream(subjects=["a.*"], subject_delete_marker_ttl=60 * _SECOND),
            publish("a.one", "x", {"Nats-TTL": "1", "K": "v"}),
            publish("a.one", "x", {"Nats-TTL": "2m"}),
            publish("a.one", "x", {"Nats-TTL": "never"}),
            *[api(GET, {"seq": sequence}) for sequence in (1, 2, 3)],
        ],
    ),
    Scenario(
        "markers: configurations",
        [
            *[
                api(f"STREAM.CREATE.{name}", {"name": name, **config})
                for name, config in [
                    ("A", {"subject_delete_marker_ttl": _SECOND}),
                    ("B", {"subject_delete_marker_ttl": _SECOND - 1}),
                    ("C", {"subject_delete_marker_ttl": -1}),
                    ("D", {"subject_delete_marker_ttl": _SECOND, "deny_purge": True}),
                    ("F", {"subject_delete_marker_ttl": _SECOND, "pedantic": True}),
                    (
                        "G",
                        {
                            "subject_delete_marker_ttl": _SECOND,
                            "pedantic": True,
                            "allow_msg_ttl": True,
                        },
                    ),
                ]
            ],
            api("STREAM.UPDATE.A", {"name": "A"}),
            api("STREAM.UPDATE.A", {"name": "A", "allow_msg_ttl": True}),
            request("$JS.API.STREAM.NAMES"),
        ],
    ),
]
