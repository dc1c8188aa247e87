"""The API level we say we have: requests that need it are taken, what needs more is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.broker.core.options import COMPATIBLE_API_LEVEL
from jetstream_world import Client, World

LEVEL = "_nats.req.level"


def asked(client: Client, call: str, document: Any, level: int) -> dict[str, Any]:
    payload = json.dumps(document).encode()
    subject = f"$JS.API.{call}".encode()
    inbox = client.request(subject, payload, Nats_Required_Api_Level=str(level))
    answer: dict[str, Any] = json.loads(inbox.take()[0].payload)
    return answer


def test_a_request_that_needs_more_is_refused() -> None:
    client = World().client()
    config = {"name": "S", "subjects": ["s.>"]}
    refused = asked(client, "STREAM.CREATE.S", config, COMPATIBLE_API_LEVEL + 1)
    assert refused["error"]["err_code"] == 10185
    assert "error" not in asked(client, "STREAM.CREATE.S", config, COMPATIBLE_API_LEVEL)


@pytest.mark.parametrize(
    ("config", "level"),
    [
        ({}, 0),
        ({"allow_msg_ttl": True}, 1),
        ({"allow_atomic": True}, 2),
        ({"allow_batched": True}, 4),
    ],
)
def test_streams_say_which_level_they_need(config: dict[str, Any], level: int) -> None:
    answer = World().client().stream(**config)
    assert answer["config"]["metadata"][LEVEL] == str(level)
    assert level <= COMPATIBLE_API_LEVEL


@pytest.mark.parametrize(
    ("config", "level"),
    [
        ({}, 0),
        ({"pause_until": "2999-01-01T00:00:00Z"}, 1),
        ({"priority_policy": "overflow", "priority_groups": ["A"]}, 1),
        ({"ack_policy": "flow_control", "deliver_subject": "d"}, 4),
    ],
)
def test_consumers_say_which_level_they_need(config: dict[str, Any], level: int) -> None:
    client = World().client()
    client.stream()
    answer = client.consumer(**config)
    assert answer["config"]["metadata"][LEVEL] == str(level)
    assert level <= COMPATIBLE_API_LEVEL
