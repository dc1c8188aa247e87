from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.broker.core.jetstream import JetStreamOptions
from headrace.broker.core.options import AssetLimits
from jetstream_world import SECOND, Client, World


@pytest.fixture
def client() -> Client:
    client = World().client()
    client.stream()
    return client


def err_code(answer: dict[str, Any]) -> int:
    code: int = answer.get("error", {}).get("err_code", 0)
    return code


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"num_replicas": -1}, 10133),
        ({"num_replicas": 3}, 10074),
        ({"ack_policy": "flow_control"}, 10218),
        ({"backoff": [-1]}, 10184),
        ({"ack_wait": -1}, 10183),
        ({"backoff": [1, 2, 3], "max_deliver": 2}, 10116),
        ({"backoff": [1, 2], "max_deliver": 2}, 0),
        ({"description": "x" * 5000}, 10107),
        ({"rate_limit_bps": 1000}, 10086),
        ({"idle_heartbeat": SECOND}, 10088),
        ({"flow_control": True}, 10089),
        ({"max_expires": 1000}, 10115),
        ({"filter_subject": "s.a", "filter_subjects": ["s.b"]}, 10136),
        ({"filter_subjects": ["s.a", ""]}, 10139),
        ({"filter_subjects": ["s.*", "s.a"]}, 10138),
        ({"filter_subjects": ["s.a", "s.a"]}, 10138),
        ({"filter_subjects": ["s.a.*", "s.*.b"]}, 0),
        ({"filter_subject": "elsewhere"}, 0),
        ({"deliver_policy": "by_start_sequence"}, 10094),
        ({"deliver_policy": "by_start_time"}, 10094),
        ({"opt_start_seq": 5}, 10094),
        ({"deliver_policy": "new", "opt_start_time": "2024-01-01T00:00:00Z"}, 10094),
        ({"deliver_policy": "last_per_subject"}, 10094),
        ({"sample_freq": "often"}, 10095),
        ({"sample_freq": "50%"}, 0),
        ({"metadata": {"k": "x" * 140_000}}, 10135),
        ({"priority_policy": "overflow"}, 10159),
        ({"priority_policy": "overflow", "priority_groups": [""]}, 10161),
        ({"priority_policy": "overflow", "priority_groups": ["no blanks"]}, 10162),
        ({"priority_policy": "overflow", "priority_groups": ["x" * 17]}, 10162),
        ({"priority_policy": "overflow", "priority_groups": ["group/consumer=A"]}, 0),
        ({"priority_groups": ["A"]}, 10196),
        ({"priority_timeout": SECOND}, 10197),
        ({"priority_policy": "weird", "priority_groups": ["A"]}, 10025),
        ({"nonsense": 1}, 10025),
        ({"max_waiting": 1 << 70}, 10025),
        ({"ack_wait": 1 << 70}, 10025),
    ],
)
def test_a_configuration_is_checked(client: Client, config: dict[str, Any], expected: int) -> None:
    assert err_code(client.consumer(**config)) == expected
    assert client.api("CONSUMER.NAMES.S")["total"] == (0 if expected else 1)


def test_what_is_absent_is_filled_in(client: Client) -> None:
    config = client.consumer()["config"]
    assert config["ack_wait"] == 30 * SECOND
    assert config["max_ack_pending"] == 1000
    assert config["max_waiting"] == 512
    assert config["max_deliver"] == -1
    assert "inactive_threshold" not in config
    assert client.consumer("B", backoff=[SECOND, 2 * SECOND])["config"]["ack_wait"] == SECOND


def test_without_an_ack_policy_nothing_is_acknowledged(client: Client) -> None:
    document = {"stream_name": "S", "config": {"durable_name": "C"}}
    config = client.api("CONSUMER.CREATE.S.C", document)["config"]
    assert config["ack_policy"] == "none"
    assert "ack_wait" not in config
    assert "max_ack_pending" not in config


def test_limits_of_the_stream_are_defaults_and_ceilings() -> None:
    client = World().client()
    client.stream(consumer_limits={"max_ack_pending": 50, "inactive_threshold": 10 * SECOND})
    config = client.consumer()["config"]
    assert (config["max_ack_pending"], config["inactive_threshold"]) == (50, 10 * SECOND)
    assert err_code(client.consumer("B", max_ack_pending=51)) == 10121
    assert err_code(client.consumer("B", inactive_threshold=11 * SECOND)) == 10153


def test_limits_of_the_server_hold() -> None:
    client = World(
        options=JetStreamOptions(assets=AssetLimits(max_ack_pending=10, max_request_batch=5))
    ).client()
    client.stream()
    config = client.consumer()["config"]
    assert (config["max_ack_pending"], config["max_batch"]) == (10, 5)
    assert err_code(client.consumer("B", max_ack_pending=11)) == 10121
    assert err_code(client.consumer("B", max_batch=6)) == 10125


def create(client: Client, action: str, **config: Any) -> dict[str, Any]:
    document = {
        "stream_name": "S",
        "action": action,
        "config": {"durable_name": "C", "ack_policy": "explicit", **config},
    }
    return client.api("CONSUMER.CREATE.S.C", document)


def test_the_three_actions(client: Client) -> None:
    assert err_code(create(client, "update")) == 10149
    assert err_code(create(client, "create")) == 0
    assert err_code(create(client, "create")) == 0, "the same again is fine"
    assert err_code(create(client, "create", ack_wait=SECOND)) == 10148
    assert err_code(create(client, "update", ack_wait=SECOND)) == 0
    assert client.info()["config"]["ack_wait"] == SECOND
    assert err_code(create(client, "", ack_wait=2 * SECOND)) == 0
    assert err_code(create(client, "destroy")) == 10025


@pytest.mark.parametrize(
    "change",
    [
        {"deliver_policy": "new"},
        {"ack_policy": "all"},
        {"replay_policy": "original"},
        {"max_waiting": 5},
        {"mem_storage": True},
    ],
)
def test_some_things_do_not_change(client: Client, change: dict[str, Any]) -> None:
    client.consumer()
    assert err_code(client.consumer(**change)) == 10012


def test_a_named_ephemeral_is_the_same_again_only_with_a_threshold_of_its_own(
    client: Client,
) -> None:
    def again(**config: Any) -> dict[str, Any]:
        return create(client, "create", durable_name="", name="C", **config)

    assert err_code(again()) == 0
    assert err_code(again()) == 10148
    client.api("CONSUMER.DELETE.S.C")
    assert err_code(again(inactive_threshold=SECOND)) == 0
    assert err_code(again(inactive_threshold=SECOND)) == 0


def test_the_filter_in_the_subject_and_in_the_body_agree(client: Client) -> None:
    def with_filter(subject: str, **config: Any) -> int:
        document = {"stream_name": "S", "config": {"name": "C", **config}}
        return err_code(client.api(f"CONSUMER.CREATE.S.C.{subject}", document))

    assert with_filter("s.a", filter_subject="s.b") == 10131
    assert with_filter("s.a", filter_subjects=["s.a"]) == 10137
    assert with_filter("s.a", filter_subject="s.a") == 0


def test_a_work_queue_gives_each_message_one_consumer() -> None:
    client = World().client()
    client.stream(retention="workqueue")
    assert err_code(client.consumer(ack_policy="none")) == 10084
    assert err_code(client.consumer(ack_policy="all")) == 10098
    assert err_code(client.consumer(deliver_policy="new")) == 10101
    assert err_code(client.consumer("A", filter_subject="s.a.>")) == 0
    assert err_code(client.consumer("B")) == 10099
    assert err_code(client.consumer("B", filter_subject="s.a.b")) == 10100
    assert err_code(client.consumer("B", filter_subject="s.b")) == 0


def test_pedantic_refuses_what_would_be_put_right(client: Client) -> None:
    def pedantic(**config: Any) -> dict[str, Any]:
        config = {"durable_name": "C", "max_deliver": -1, **config}
        document = {"stream_name": "S", "config": config, "pedantic": True}
        return client.api("CONSUMER.CREATE.S.C", document)

    assert err_code(pedantic(max_batch=-1)) == 10157
    assert err_code(pedantic(max_deliver=-2)) == 10157
    assert err_code(pedantic()) == 0


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", "400"),
        ({"idle_heartbeat": SECOND, "expires": SECOND}, "400"),
        ({"batch": 11}, "409 Exceeded MaxRequestBatch of 10"),
        ({"expires": 3 * SECOND}, "409 Exceeded MaxRequestExpires of 2s"),
        ({"max_bytes": 1001}, "409 Exceeded MaxRequestMaxBytes of 1000"),
        ({"min_pending": 1}, "400 Bad Request - Not a Overflow Priority consumer"),
        ({"id": "x"}, "400 Bad Request - Not a Pinned Client Priority consumer"),
        ({"priority": 10}, "400 Bad Request - Priority must be between 0 and 9"),
        ({"batch": 1 << 80}, "400"),
    ],
)
def test_a_pull_request_is_checked(client: Client, body: Any, status: str) -> None:
    client.consumer(max_batch=10, max_expires=2 * SECOND, max_bytes=1000)
    (answer,) = client.pull(body).take()
    assert answer.status.startswith(status)
    assert client.info()["num_waiting"] == 0


def test_a_name_of_thousands_of_characters_is_answered_and_the_connection_stays(
    client: Client,
) -> None:
    """In the subject as long as a line may be, in the body longer than that."""
    for call, name in (
        ("CONSUMER.CREATE.S." + "x" * 3900, "x" * 3900),
        ("CONSUMER.CREATE.S", "x" * 5000),
    ):
        answer = client.api(call, {"stream_name": "S", "config": {"name": name}})
        assert err_code(answer) == 10102
        assert len(json.dumps(answer)) < 400
    assert client.api("STREAM.INFO.S")["state"]["consumer_count"] == 0


@pytest.mark.parametrize("body", [b"9" * 5000, b"five", b"-3", b"0"])
def test_a_body_that_is_no_document_asks_for_one_message(client: Client, body: bytes) -> None:
    client.consumer()
    client.publish(b"s.a")
    client.publish(b"s.a")
    assert len(client.pull(body).take()) == 1


def test_groups_are_checked_on_pulls_of_a_priority_consumer(client: Client) -> None:
    client.consumer(priority_policy="overflow", priority_groups=["A"])
    assert client.pull({"batch": 1}).take()[0].status == "400 Bad Request - Priority Group missing"
    bad = client.pull({"batch": 1, "group": "B"}).take()
    assert bad[0].status == "400 Bad Request - Invalid Priority Group"
    client.publish(b"s.a")
    assert client.pull(b"1").take()[0].payload == b"", "a plain body belongs to no group"


def test_absurd_numbers_in_acks_do_no_harm(client: Client) -> None:
    client.consumer()
    client.publish(b"s.a")
    (message,) = client.pull(b"1").take()
    for body in (b'-NAK {"delay": %d}' % 10**60, b"-NAK " + b"9" * 5000 + b"s", b"+WPI"):
        client.publish(message.reply, body)
    client.publish(b"$JS.ACK.S.C.1." + b"9" * 3000 + b".1.1.1", b"+ACK")
    client.world.advance(1)
    assert client.info()["num_ack_pending"] == 1
    assert client.ack(message)
