"""Consumers: creating, updating, listing and deleting them, and what is refused."""

from __future__ import annotations

from typing import Any

from conformance.driver import Step
from conformance.steps import api, consumer, publish_all, pull, stream
from conformance.table import Scenario, Table

SECOND = 1_000_000_000
INFO = "CONSUMER.INFO.S.C"


def create(config: dict[str, Any], name: str = "C", **request: Any) -> Step:
    """Create a named durable consumer and record the reply."""
    body = {"stream_name": "S", "config": {"durable_name": name, **config}, **request}
    return api(f"CONSUMER.CREATE.S.{name}", body)


def case(title: str, config: dict[str, Any], **request: Any) -> Scenario:
    """A consumer on a stream with subjects ``a.>``: created or refused."""
    return Scenario(title, [stream(subjects=["a.>"]), create(config, **request)])


def change(title: str, before: dict[str, Any], after: dict[str, Any]) -> Scenario:
    steps = [stream(subjects=["a.>"]), consumer(**before)]
    return Scenario(title, [*steps, create({"ack_policy": "explicit", **after}), api(INFO)])


LIFE: Table = [
    case("a consumer from nothing acknowledges nothing", {}),
    case("a consumer with explicit acks", {"ack_policy": "explicit"}),
    case("a consumer that acks all", {"ack_policy": "all"}),
    case(
        "a consumer with everything",
        {
            "description": "all of it",
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": 5,
            "ack_policy": "explicit",
            "ack_wait": 10 * SECOND,
            "max_deliver": 4,
            "backoff": [SECOND, 2 * SECOND],
            "filter_subjects": ["a.x", "a.y"],
            "sample_freq": "50%",
            "max_waiting": 10,
            "max_ack_pending": 20,
            "headers_only": True,
            "max_batch": 30,
            "max_expires": 40 * SECOND,
            "max_bytes": 50_000,
            "inactive_threshold": 60 * SECOND,
            "metadata": {"owner": "me"},
        },
    ),
    Scenario(
        "an ephemeral consumer gets a name",
        [
            stream(subjects=["a"]),
            api(
                "CONSUMER.CREATE.S",
                {"stream_name": "S", "config": {"ack_policy": "explicit"}},
                learn="{e}",
            ),
            api("CONSUMER.NAMES.S"),
        ],
    ),
    Scenario(
        "a named ephemeral consumer",
        [
            stream(subjects=["a"]),
            api(
                "CONSUMER.CREATE.S.E",
                {"stream_name": "S", "config": {"name": "E", "ack_policy": "explicit"}},
            ),
        ],
    ),
    Scenario(
        "the old call for a durable consumer",
        [
            stream(subjects=["a"]),
            api(
                "CONSUMER.DURABLE.CREATE.S.C",
                {"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}},
            ),
        ],
    ),
    Scenario(
        "a filter in the subject of the call",
        [
            stream(subjects=["a.>"]),
            api(
                "CONSUMER.CREATE.S.C.a.x",
                {"stream_name": "S", "config": {"durable_name": "C", "filter_subject": "a.x"}},
            ),
            api(
                "CONSUMER.CREATE.S.D.a.x",
                {"stream_name": "S", "config": {"durable_name": "D", "filter_subject": "a.y"}},
            ),
            api(
                "CONSUMER.CREATE.S.E.a.x",
                {"stream_name": "S", "config": {"durable_name": "E", "filter_subjects": ["a.x"]}},
            ),
        ],
    ),
    Scenario(
        "info tells how much is waiting",
        [
            stream(subjects=["a.>"]),
            publish_all("a.x", "a.y", "a.x"),
            consumer(),
            consumer("F", filter_subject="a.x"),
            api(INFO),
            api("CONSUMER.INFO.S.F"),
        ],
    ),
    Scenario("info of a consumer that is not there", [stream(), api("CONSUMER.INFO.S.NOPE")]),
    Scenario("info of a consumer of a stream that is not there", [api("CONSUMER.INFO.NOPE.C")]),
    Scenario("info with a body", [stream(), consumer(), api(INFO, "{}"), api(INFO, {"x": 1})]),
    Scenario("no consumers", [stream(), api("CONSUMER.NAMES.S"), api("CONSUMER.LIST.S")]),
    Scenario(
        "names and list of consumers",
        [
            stream(),
            consumer("B"),
            consumer("A"),
            api("CONSUMER.NAMES.S"),
            api("CONSUMER.LIST.S"),
        ],
    ),
    Scenario(
        "names beyond the last consumer",
        [
            stream(),
            consumer("B"),
            api("CONSUMER.NAMES.S", {"offset": 4}),
        ],
    ),
    Scenario(
        "names of a stream that is not there",
        [
            api("CONSUMER.NAMES.NOPE"),
            api("CONSUMER.LIST.NOPE"),
        ],
    ),
    Scenario("delete a consumer", [stream(), consumer(), api("CONSUMER.DELETE.S.C"), api(INFO)]),
    Scenario("delete a consumer that is not there", [stream(), api("CONSUMER.DELETE.S.NOPE")]),
    Scenario(
        "delete a consumer with a body",
        [stream(), consumer(), api("CONSUMER.DELETE.S.C", {"x": 1})],
    ),
    Scenario("the stream counts its consumers", [stream(), consumer(), api("STREAM.INFO.S")]),
    Scenario(
        "as many consumers as allowed",
        [
            stream(max_consumers=1),
            consumer(),
            create({"ack_policy": "explicit"}, "D"),
        ],
    ),
    Scenario("a consumer of a stream that is not there", [create({"ack_policy": "explicit"})]),
]

VALIDATION: Table = [
    Scenario("a consumer from nonsense", [stream(), api("CONSUMER.CREATE.S.C", "nonsense")]),
    Scenario("a consumer without a document", [stream(), api("CONSUMER.CREATE.S.C")]),
    Scenario(
        "a consumer with an unknown field", [stream(subjects=["a.>"]), create({"nonsense": 1})]
    ),
    Scenario(
        "a consumer with an unknown field beside",
        [stream(subjects=["a.>"]), create({}, nonsense=1)],
    ),
    Scenario(
        "a consumer for another stream",
        [
            stream(),
            api("CONSUMER.CREATE.S.C", {"stream_name": "T", "config": {"durable_name": "C"}}),
        ],
    ),
    Scenario(
        "a durable name other than the subject's",
        [
            stream(),
            api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": {"durable_name": "D"}}),
        ],
    ),
    Scenario(
        "a name other than the durable name",
        [
            stream(),
            api(
                "CONSUMER.CREATE.S.C",
                {"stream_name": "S", "config": {"durable_name": "C", "name": "D"}},
            ),
        ],
    ),
    Scenario(
        "the old call without a durable name",
        [
            stream(),
            api("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": {}}),
        ],
    ),
    Scenario(
        "the old call with another durable name",
        [
            stream(),
            api(
                "CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": {"durable_name": "D"}}
            ),
        ],
    ),
    Scenario(
        "a durable name in the call for ephemerals",
        [
            stream(),
            api("CONSUMER.CREATE.S", {"stream_name": "S", "config": {"durable_name": "D"}}),
        ],
    ),
    case("an unknown ack policy", {"ack_policy": "maybe"}),
    case("an unknown deliver policy", {"deliver_policy": "some"}),
    case("an unknown replay policy", {"replay_policy": "slow"}),
    case("an unknown action", {"ack_policy": "explicit"}, action="destroy"),
    case("a negative backoff", {"ack_policy": "explicit", "max_deliver": 5, "backoff": [-1]}),
    case("a negative ack wait", {"ack_policy": "explicit", "ack_wait": -1}),
    case(
        "more backoff than deliveries",
        {
            "ack_policy": "explicit",
            "max_deliver": 2,
            "backoff": [SECOND] * 3,
        },
    ),
    case("a consumer's description that is too long", {"description": "x" * 4097}),
    case("a consumer's metadata that is too long", {"metadata": {"k": "x" * 140_000}}),
    case("a heartbeat on a pull consumer", {"ack_policy": "explicit", "idle_heartbeat": SECOND}),
    case("flow control on a pull consumer", {"ack_policy": "explicit", "flow_control": True}),
    case("a rate limit on a pull consumer", {"ack_policy": "explicit", "rate_limit_bps": 1000}),
    case("a negative maximal batch", {"ack_policy": "explicit", "max_batch": -1}),
    case("a maximal expiry under a millisecond", {"ack_policy": "explicit", "max_expires": 1000}),
    case("a filter and filters at once", {"filter_subject": "a.x", "filter_subjects": ["a.y"]}),
    case("an empty filter among others", {"filter_subjects": ["a.x", ""]}),
    case("filters of which one holds the other", {"filter_subjects": ["a.*", "a.x"]}),
    case("filters that merely cross", {"filter_subjects": ["a.*.x", "a.y.*"]}),
    case("a filter outside the stream", {"ack_policy": "explicit", "filter_subject": "z"}),
    case("a malformed filter", {"filter_subject": "a..b"}),
    case("a start sequence for all", {"opt_start_seq": 5}),
    case("a start time for all", {"opt_start_time": "2024-01-01T00:00:00Z"}),
    case("a start sequence that is missing", {"deliver_policy": "by_start_sequence"}),
    case("a start time that is missing", {"deliver_policy": "by_start_time"}),
    case("a start sequence for new messages", {"deliver_policy": "new", "opt_start_seq": 5}),
    case("last per subject without a filter", {"deliver_policy": "last_per_subject"}),
    case("a broken sample frequency", {"ack_policy": "explicit", "sample_freq": "often"}),
    case("more replicas than the stream has", {"num_replicas": 3}),
    case("priority groups without a policy", {"priority_groups": ["A"]}),
    case(
        "limits below zero become the defaults",
        {
            "ack_policy": "explicit",
            "max_deliver": -5,
            "max_waiting": -5,
            "max_ack_pending": -5,
        },
    ),
    Scenario(
        "a name with a wildcard",
        [
            stream(),
            api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": {"name": "C*"}}),
        ],
    ),
    Scenario("a consumer's name that is too long", [stream(), create({}, "x" * 256)]),
    Scenario(
        "work queue: a consumer must acknowledge",
        [
            stream(subjects=["a.>"], retention="workqueue"),
            create({}),
        ],
    ),
    Scenario(
        "work queue: a second consumer of everything",
        [
            stream(subjects=["a.>"], retention="workqueue"),
            consumer(),
            create({"ack_policy": "explicit"}, "D"),
        ],
    ),
    Scenario(
        "work queue: consumers that overlap",
        [
            stream(subjects=["a.>"], retention="workqueue"),
            consumer(filter_subject="a.x"),
            create({"ack_policy": "explicit", "filter_subject": "a.*"}, "D"),
            create({"ack_policy": "explicit", "filter_subject": "a.y"}, "E"),
        ],
    ),
    Scenario(
        "work queue: only from the beginning",
        [
            stream(subjects=["a.>"], retention="workqueue"),
            create({"ack_policy": "explicit", "deliver_policy": "new"}),
        ],
    ),
    Scenario(
        "pedantic: a consumer's limits must be said",
        [
            stream(subjects=["a.>"]),
            create({"ack_policy": "explicit", "max_waiting": -1}, pedantic=True),
        ],
    ),
]

ACTIONS: Table = [
    Scenario(
        "create only: new, the same again, then another",
        [
            stream(subjects=["a.>"]),
            create({"ack_policy": "explicit"}, action="create"),
            create({"ack_policy": "explicit"}, action="create"),
            create({"ack_policy": "explicit", "max_deliver": 3}, action="create"),
        ],
    ),
    Scenario(
        "update only: missing, then there",
        [
            stream(subjects=["a.>"]),
            create({"ack_policy": "explicit"}, action="update"),
            create({"ack_policy": "explicit"}, action="create"),
            create({"ack_policy": "explicit", "max_deliver": 3}, action="update"),
        ],
    ),
    Scenario(
        "an ephemeral created again by name",
        [
            stream(subjects=["a"]),
            *[
                api(
                    "CONSUMER.CREATE.S.E",
                    {
                        "stream_name": "S",
                        "config": {"name": "E", "ack_policy": "explicit"},
                        "action": "create",
                    },
                )
            ]
            * 2,
        ],
    ),
    Scenario(
        "an ephemeral with its own threshold created again by name",
        [
            stream(subjects=["a"]),
            *[
                api(
                    "CONSUMER.CREATE.S.E",
                    {
                        "stream_name": "S",
                        "config": {
                            "name": "E",
                            "ack_policy": "explicit",
                            "inactive_threshold": 60 * SECOND,
                        },
                        "action": "create",
                    },
                )
            ]
            * 2,
        ],
    ),
    change("change the description", {}, {"description": "new"}),
    change(
        "change the ack wait and the limits",
        {},
        {
            "ack_wait": 5 * SECOND,
            "max_ack_pending": 5,
            "max_deliver": 3,
            "max_batch": 10,
        },
    ),
    change("change the filter", {}, {"filter_subject": "a.x"}),
    change("change the deliver policy", {}, {"deliver_policy": "new"}),
    change("change the ack policy", {}, {"ack_policy": "all"}),
    change("change the replay policy", {}, {"replay_policy": "original"}),
    change("change the waiting limit", {}, {"max_waiting": 5}),
    change(
        "change the start sequence",
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 2},
        {
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": 3,
        },
    ),
    Scenario(
        "a new filter changes what is pending",
        [
            stream(subjects=["a.>"]),
            publish_all("a.x", "a.y", "a.x", "a.y", "a.x"),
            consumer(),
            pull("1", 1),
            create({"ack_policy": "explicit", "filter_subject": "a.y"}),
            api(INFO),
        ],
    ),
]

TABLE: Table = [*LIFE, *VALIDATION, *ACTIONS]
