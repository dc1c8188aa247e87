"""Every list in a configuration or a request has a cap: at it the request is granted, beyond it refused."""

from __future__ import annotations

import json
import random
from typing import Any, NamedTuple

import pytest

from headrace.broker.core.hub import Hub
from headrace.broker.core.options import HubOptions
from jetstream_world import Client, World


class Cap(NamedTuple):
    """A list of ``most`` or more, how one makes a request of it, and how it is refused."""

    verb: str
    most: int
    field: str
    err_code: int
    said: str


def words(count: int, *, tokens: int = 1) -> list[str]:
    """Subjects of so many tokens each."""
    return [".".join([f"x{number}", *["a"] * (tokens - 1)]) for number in range(count)]


def document(field: str, count: int) -> dict[str, Any]:
    """The settings with ``count`` of what ``field`` names."""
    rules = [{"src": f"a.{number}", "dest": f"b.{number}"} for number in range(count)]
    long = {"src": ".".join(["a"] * count), "dest": "b"}
    made: dict[str, dict[str, Any]] = {
        "subjects": {"subjects": words(count)},
        "tokens of subjects": {
            "subjects": words(count // 10, tokens=10) + words(count % 10, tokens=1)
        },
        "metadata": {"metadata": {str(number): "" for number in range(count)}},
        "metadata bytes": {"metadata": {"k": "x" * (count - 1)}},
        "tags": {"placement": {"tags": ["a"] * count}},
        "sources": {"sources": [{"name": f"S{number}"} for number in range(count)]},
        "transforms of sources": {"sources": [{"name": "X", "subject_transforms": rules}]},
        "transform": {"subject_transform": long},
        "republish": {"republish": {"src": long["src"], "dest": "b"}},
        "arguments": {
            "subject_transform": {
                "src": "*",
                "dest": "{{partition(9" + ",1" * (count - 2) + ")}}",
            }
        },
        "filters": {"filter_subjects": words(count)},
        "tokens of filters": {
            "filter_subjects": words(count // 10, tokens=10) + words(count % 10, tokens=1)
        },
        "backoff": {"backoff": [1_000_000] * count},
        "groups": {"priority_policy": "overflow", "priority_groups": ["a"] * count},
        "filter": {"filter_subject": "x" * count},
        "description": {"description": "x" * count},
    }
    return made[field]


STREAM, CONSUMER = "STREAM.CREATE.T", "CONSUMER.CREATE.S.C"
INVALID, REFUSED, JSON = 10052, 10012, 10025
CAPS = [
    Cap(STREAM, 5000, "subjects", INVALID, "too many subjects"),
    Cap(STREAM, 25_000, "tokens of subjects", INVALID, "too many tokens in all subjects: 25001"),
    Cap(STREAM, 10_000, "metadata", INVALID, "too many metadata entries: 10001"),
    Cap(STREAM, 128 * 1024, "metadata bytes", INVALID, "stream metadata exceeds maximum size"),
    Cap(STREAM, 1000, "tags", INVALID, "too many placement tags: 1001"),
    Cap(STREAM, 1000, "sources", INVALID, "too many sources: 1001"),
    Cap(STREAM, 400, "transforms of sources", INVALID, "too many subject transforms of sources"),
    Cap(STREAM, 256, "transform", INVALID, "too many tokens in a subject transform: 257"),
    Cap(STREAM, 256, "republish", INVALID, "too many tokens in a subject transform: 257"),
    Cap(STREAM, 256, "arguments", INVALID, "too many tokens in a subject transform: 257"),
    Cap(STREAM, 4096, "description", INVALID, "stream description is too long"),
    Cap(CONSUMER, 5000, "filters", REFUSED, "too many subjects"),
    Cap(CONSUMER, 25_000, "tokens of filters", REFUSED, "too many tokens in all subjects: 25001"),
    Cap(CONSUMER, 10_000, "metadata", INVALID, "too many metadata entries: 10001"),
    Cap(CONSUMER, 1000, "backoff", REFUSED, "too many backoff steps: 1001"),
    Cap(CONSUMER, 1, "groups", REFUSED, "priority groups are limited to one per consumer"),
    Cap(CONSUMER, 16_384, "filter", JSON, "text of 16385 characters in filter_subject"),
]


def ask(client: Client, cap: Cap, count: int) -> dict[str, Any]:
    settings = document(cap.field, count)
    if cap.verb == STREAM:
        return client.api(cap.verb, {"name": "T", **settings})
    config = {"name": "C", "ack_policy": "explicit", **settings}
    return client.api(cap.verb, {"stream_name": "S", "config": config})


@pytest.mark.parametrize("cap", CAPS, ids=[f"{cap.verb} {cap.field}" for cap in CAPS])
def test_as_many_as_the_cap_says_are_granted_and_one_more_is_refused(cap: Cap) -> None:
    client = World().client()
    client.stream("S")
    refused = ask(client, cap, cap.most + 1)["error"]
    assert refused["err_code"] == cap.err_code
    assert cap.said in refused["description"]
    missing = client.api(cap.verb.replace("CREATE", "INFO"))["error"]["err_code"]
    assert missing in (10059, 10014)  # nothing of it is there
    assert "error" not in ask(client, cap, cap.most)


def test_transforms_of_sources_have_a_cap_for_their_tokens_together() -> None:
    client = World().client()
    rules = [{"src": f"a{number}" + ".a" * 19} for number in range(191)]  # and an empty destination
    config = {"name": "T", "sources": [{"name": "X", "subject_transforms": rules}]}
    said = client.api(STREAM, config)["error"]["description"]
    assert said == "too many tokens in subject transforms of sources: 4011; accepted are 4000"


def test_a_list_of_very_many_small_values_is_refused_before_they_are_read() -> None:
    client = World().client()
    client.stream("S")
    said = ask(client, CAPS[-3], 60_000)["error"]["description"]
    assert said == "invalid JSON: json: too many values; accepted are 20000"


@pytest.mark.parametrize("value", ["[]", "{}", "[[[]]]", '{"a":[{}]}', "0"])
def test_values_are_counted_however_they_are_nested(value: str) -> None:
    client = World().client()
    for count, said in ((20_100, "too many values"), (4_000, 'unknown field "more"')):
        depth = max(1, value.count("[") + value.count("{") + 1)
        body = '{"more":[%s]}' % ",".join([value] * (count // depth))  # noqa: UP031
        answer = client.request(b"$JS.API.STREAM.LIST", (body + " " * 16_384).encode())
        assert said in json.loads(answer.take()[0].payload)["error"]["description"]


def test_subjects_that_only_a_tree_can_compare_have_a_lower_cap() -> None:
    """Of more than eight shapes behind the same token; those of fewer are told apart without one."""

    def shaped(count: int, shapes: int) -> list[str]:
        ends = [f"{number % shapes}" + ".*" * (number % shapes) for number in range(count)]
        return [f"x.{number}.{end}" for number, end in enumerate(ends)]

    client = World().client()
    client.stream("S")
    many, few = shaped(1_800, 9), shaped(3_000, 8)
    assert sum(each.count(".") + 1 for each in many) > 12_500
    for verb, config in (
        (STREAM, {"name": "T", "subjects": many}),
        (CONSUMER, {"stream_name": "S", "config": {"name": "C", "filter_subjects": many}}),
    ):
        said = client.api(verb, config)["error"]["description"]
        assert "too many tokens in subjects of many shapes: 12600; accepted are 12500" in said
    assert "error" not in client.api(STREAM, {"name": "T", "subjects": few})
    assert "error" not in client.api("STREAM.UPDATE.T", {"name": "T", "subjects": many[:1_700]})


def test_a_request_larger_than_a_mebibyte_is_refused_whatever_a_message_may_have() -> None:
    world = World()
    world.hub = Hub(world.clock, random.Random(1), HubOptions(max_payload=4 * 1024 * 1024))
    world.hub.start_jetstream(world.storage, None)
    client = world.client()
    client.stream("S", allow_direct=True)
    blanks = " " * (1024 * 1024)
    answers = client.request(b"$JS.API.STREAM.LIST", ('{"offset":0}' + blanks).encode()).take()
    refused = json.loads(answers[0].payload)["error"]
    assert refused["err_code"] == JSON
    assert "request of 1048588 bytes; accepted are 1048576" in refused["description"]
    direct = client.request(b"$JS.API.DIRECT.GET.S", ('{"seq":1}' + blanks).encode()).take()
    assert direct[0].status.startswith("408")


@pytest.mark.parametrize(("count", "status"), [(5000, "404 No Results"), (5001, "413")])
def test_a_direct_get_names_at_most_five_thousand_subjects(count: int, status: str) -> None:
    client = World().client()
    client.stream("S", allow_direct=True)
    asked = json.dumps({"multi_last": words(count)}).encode()
    answers = client.request(b"$JS.API.DIRECT.GET.S", asked).take()
    assert answers[0].status.startswith(status)


def test_a_pull_of_very_many_small_values_is_refused() -> None:
    client = World().client()
    client.stream("S")
    client.api(CONSUMER, {"stream_name": "S", "config": {"name": "C", "ack_policy": "explicit"}})
    body = json.dumps({"batch": 1, "no_wait": True, "more": [0] * 60_000}).encode()
    (answer,) = client.request(b"$JS.API.CONSUMER.MSG.NEXT.S.C", body).take()
    assert answer.status.startswith("400")
