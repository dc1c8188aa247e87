"""Which messages become jobs of a consumer: filters by subject and headers."""

from __future__ import annotations

import asyncio
import fnmatch
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli import main
from headrace.jobs import limits
from headrace.jobs.client import OutgoingMessage
from headrace.jobs.matching.filters import SUBJECT, MessageFilter, compiled, fits
from headrace.jobs.matching.patterns import fits_one
from headrace.jobs.models import NewMessage, Options
from headrace.jobs.seeds import Seeds, apply_seeds
from headrace.jobs.service import fanning
from headrace.jobs.service.publishing import publishing
from jobs_world import PRODUCER, World, jobs_client

TOKENS: dict[str, Any] = {"channel_token": "ct", "producer": "p", "producer_token": "pt"}


async def test_a_message_becomes_a_job_of_those_whose_filter_it_fits(world: World) -> None:
    await world.consumer("all", type="pull", token="kt")
    await world.set_filter(subjects=["orders.eu.*", "refunds.>"])
    subjects = ("orders.eu.1", "orders.us.2", "refunds.3.4", "orders.eu", None)
    for subject in subjects:
        named = {} if subject is None else {"X-Broker-Subject": subject}
        response = await world.http.post(
            "/v2/channel/c/messages", content=str(subject), headers={**PRODUCER, **named}
        )
        assert response.json()["jobs"] == (2 if subject in ("orders.eu.1", "refunds.3.4") else 1)
    assert await world.payloads() == ["orders.eu.1", "refunds.3.4"]
    assert await world.payloads("all") == [str(subject) for subject in subjects]
    (job,) = await world.claim(1)
    assert job["message"]["headers"] == {SUBJECT: "orders.eu.1"}


async def test_each_named_header_has_to_fit_one_of_its_patterns(world: World) -> None:
    await world.set_filter(headers={"X-Kind": ["paid", "re*ed"], "x-land": ["*"]})
    for kind, land in (
        ("paid", "de"),
        ("refunded", ""),
        ("open", "de"),
        ("re", "de"),
        ("paid", None),
    ):
        headers: dict[str, Any] = (
            {"X-Kind": kind} if land is None else {"X-Kind": kind, "X-Land": land}
        )
        await world.broadcast(
            f"{kind} {land}", X_Broker_Metadata_Headers="x-kind,X-LAND", **headers
        )
    assert await world.payloads() == ["paid de", "refunded "]


@pytest.mark.parametrize("nothing", [None, {}])
async def test_a_filter_that_is_given_replaces_the_one_before_and_null_removes_it(
    world: World, nothing: Any
) -> None:
    path = "/v2/channel/c/consumer/k"
    settings = {"concurrency": 7, "filter": {"subjects": ["a"]}}
    await world.http.patch(path, json={"settings": settings})
    changed = await world.set_filter(headers={"X-Kind": ["1"]})
    found = changed["settings"]["filter"]
    assert found == {"subjects": [], "headers": {"X-Kind": ["1"]}, "payload": {}}
    await world.broadcast("none")
    await world.broadcast("fits", X_Broker_Metadata_Headers="X-Kind", X_Kind="1")
    await world.http.patch(path, json={"settings": {"concurrency": None}})
    changed = (await world.http.patch(path, json={"settings": {"filter": nothing}})).json()
    assert changed["settings"]["concurrency"] == limits.PUSH_CONCURRENCY_DEFAULT
    await world.broadcast("all")
    assert await world.payloads() == ["fits", "all"]


async def test_a_filter_of_one_channel_changes_nothing_in_another(world: World) -> None:
    await world.set_filter(subjects=["a"])
    await world.put("/channel/d", token="ct")
    await world.put("/channel/d/consumer/k", type="pull", token="kt")
    headers = {**PRODUCER, "X-Broker-Subject": "b"}
    for channel in ("c", "d"):
        await world.http.post(f"/channel/{channel}/broadcast", content=b"x", headers=headers)
    assert await world.payloads() == []
    listed = await world.http.get(
        "/channel/d/consumer/k/queued-jobs",
        headers={"X-Broker-Channel-Token": "ct", "X-Broker-Consumer-Token": "kt"},
    )
    assert len(listed.json()["Result"]) == 1


async def test_jobs_of_a_key_keep_their_order_past_messages_that_are_left_out(world: World) -> None:
    await world.set_filter(subjects=["yes"])
    for number in range(6):
        subject = "yes" if number % 2 else "no"
        await world.broadcast(str(number), X_Broker_Ordering_Key="key", X_Broker_Subject=subject)
    for payload in ("1", "3", "5"):
        (job,) = await world.claim(10)
        assert job["message"]["payload"] == payload
        await world.lease("complete", jobs=[{"id": job["id"], "lease": job["lease"]}])


async def test_a_scheduled_message_goes_by_the_filter_of_its_time(world: World) -> None:
    for name in ("a", "b"):
        await world.broadcast(
            name, X_Broker_Subject=name, X_Broker_Scheduled_For="2999-01-01T00:00:00Z"
        )
    await world.set_filter(subjects=["b"])
    later = world.runtime.now_us() + 10**18
    done = await world.runtime.database.write(
        lambda tx: publishing.dispatch_due(tx, publishing.find_due(tx, later), later)
    )
    assert (done.messages, dict(done.jobs)) == (2, {"c": 1})
    assert await world.payloads() == ["b"]


async def test_what_a_stream_feeds_is_filtered_by_the_subject_it_had(world: World) -> None:
    await world.set_filter(subjects=["eu.*"])
    messages = [
        NewMessage(payload=name.encode(), message_id=name, headers={SUBJECT: name})
        for name in ("eu.1", "us.1", "eu.2")
    ]
    for expected in ((3, 2), (0, 0)):
        made = await world.runtime.database.write(
            lambda tx: publishing.feed(tx, "c", messages, tx.now_us())
        )
        assert made == expected
    assert await world.payloads() == ["eu.1", "eu.2"]


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"subjects": ["a..b"]}, "filter.subjects"),
        ({"subjects": ["a.>.b"]}, "filter.subjects"),
        ({"subjects": ["a b"]}, "filter.subjects"),
        ({"subjects": ["a"] * 65}, "filter.subjects"),
        ({"subjects": ["a" * 1025]}, "filter.subjects"),
        ({"headers": {"X": []}}, "filter.headers.X"),
        ({"headers": {"X": ["1"], "x": ["2"]}}, "filter.headers"),
        ({"headers": {" ": ["1"]}}, "filter.headers"),
        ({"headers": {f"X{number}": ["1"] for number in range(17)}}, "filter.headers"),
        ({"headers": {f"X{number}": ["1"] * 43 for number in range(3)}}, "filter"),
        ({"headers": {"X": ["y" * 1000] * 17}}, "settings"),
        ({"headers": {"X": "1"}}, "settings"),
        ({"subject": ["a"]}, "filter.subject"),
    ],
)
async def test_a_filter_that_means_nothing_is_refused_by_its_field(
    world: World, wanted: dict[str, Any], field: str
) -> None:
    refused = await world.set_filter(400, **wanted)
    assert refused["field"] == field
    await world.broadcast()
    assert len(await world.queued()) == 1


async def test_filters_are_read_once_for_all_of_a_batch(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with keys and unique messages: reading large settings for each would hold up all who write."""
    await world.set_filter(headers={"X-Kind": ["paid"]})
    read: list[int] = []
    of_channel = fanning._consumers

    def counted(tx: Any, seq: int) -> Any:
        read.append(seq)
        return of_channel(tx, seq)

    monkeypatch.setattr(fanning, "_consumers", counted)
    messages = [
        {
            "payload": f"{number}",
            "ordering_key": f"k{number % 7}",
            "headers": {"X-Kind": "paid" if number % 2 else "open"},
            "unique": {"by": ["payload"]},
        }
        for number in (*range(60), 3)
    ]
    answer = await world.http.post(
        "/v2/channel/c/messages/batch", json={"messages": messages}, headers=PRODUCER
    )
    assert answer.status_code == 201, answer.text
    assert [one["jobs"] for one in answer.json()["messages"]] == [0, 1] * 30 + [0]
    assert answer.json()["messages"][-1]["duplicate"]
    assert len(read) == 1


@pytest.mark.one_database
@pytest.mark.parametrize("subject", ["a..b", "a.*", ">", "a b", "a" * 1025])
async def test_a_subject_that_is_none_is_refused(world: World, subject: str) -> None:
    response = await world.broadcast("x", 400, X_Broker_Subject=subject)
    assert "X-Broker-Subject" in response.text
    batch = await world.http.post(
        "/v2/channel/c/messages/batch",
        json={"messages": [{"payload": "x", "subject": subject}]},
        headers=PRODUCER,
    )
    assert batch.json()["field"] == "messages[0].subject"


async def test_a_consumer_of_the_configuration_may_have_a_filter(world: World) -> None:
    consumer = {"token": "st", "type": "pull", "settings": {"filter": {"subjects": ["a"]}}}
    seeds = Seeds.read({"channels": {"c": {"token": "ct", "consumers": {"s": consumer}}}})
    await world.runtime.database.write(lambda tx: apply_seeds(tx, seeds, Options(), tx.now_us()))
    await world.broadcast(X_Broker_Subject="a")
    await world.broadcast(X_Broker_Subject="b")
    counts = await world.http.get("/v2/channel/c/consumer/s")
    assert counts.json()["jobs"]["QUEUED"] == 1


async def test_a_filter_that_has_gone_with_its_consumer_holds_nothing_back(world: World) -> None:
    await world.consumer("n", type="pull", token="kt")
    await world.set_filter(subjects=["a"])
    version = (await world.http.get("/channel/c/consumer/k")).headers["etag"]
    await world.http.delete("/channel/c/consumer/k", headers={"If-Match": version})
    await world.broadcast("x")
    assert await world.payloads("n") == ["x"]


async def test_the_client_names_subjects_one_by_one_and_in_batches(world: World) -> None:
    await world.set_filter(subjects=["ö.*"])
    async with jobs_client(world.runtime) as client:
        for subject, jobs in (("ö.1", 1), ("o.1", 0), (None, 0)):
            made = await client.publish("c", b"x", subject=subject, **TOKENS)
            assert made["jobs"] == jobs
        batch = [OutgoingMessage(payload=b"y", subject=subject) for subject in ("ö.2", "o", None)]
        made_batch = await client.publish_batch("c", batch, **TOKENS)
        assert [one["jobs"] for one in made_batch] == [1, 0, 0]
    assert await world.payloads() == ["x", "y"]


async def test_an_ordering_key_is_the_same_from_each_way_of_publishing(world: World) -> None:
    async with jobs_client(world.runtime) as client:
        await client.publish("c", b"x", ordering_key="schlüssel €", **TOKENS)
        batch = [OutgoingMessage(payload=b"y", ordering_key="schlüssel €")]
        await client.publish_batch("c", batch, **TOKENS)
    (job,) = await world.claim(2)
    assert job["message"]["ordering_key"] == "schlüssel €"


@pytest.mark.one_database
async def test_the_command_shows_a_filter_and_sets_it(
    world: World,
    address: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run(*typed: str) -> tuple[int, str]:
        code = await asyncio.to_thread(main, ["jobs", *typed, "--url", address])
        said = capsys.readouterr()
        return code, said.out + said.err

    assert "every message" in (await run("filter", "c", "k"))[1]
    options = ("--subject", "a.>", "--header", "X-Kind=paid", "--header", "X-Kind=re*")
    code, said = await run("filter", "c", "k", *options)
    assert code == 0
    assert "subject: a.>" in said
    assert "X-Kind: paid or re*" in said
    assert (await run("filter", "c", "k"))[1] == said
    monkeypatch.setenv("HEADRACE_JOBS_CHANNEL_TOKEN", "ct")
    monkeypatch.setenv("HEADRACE_JOBS_PRODUCER_TOKEN", "pt")
    code, said = await run("publish", "c", "x", "--producer", "p", "--subject", "b")
    assert (code, '"jobs": 0' in said) == (0, True)
    code, said = await run("filter", "c", "k", "--header", "X-Kind")
    assert code != 0
    assert "NAME=PATTERN" in said
    assert "every message" in (await run("filter", "c", "k", "--everything"))[1]


@given(st.text("ab*", max_size=8), st.text("ab\n", max_size=12))
def test_a_pattern_fits_what_its_expression_matches(pattern: str, value: str) -> None:
    expression = re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
    assert fits(pattern, value) == (expression.fullmatch(value) is not None)
    assert fits(pattern, value) == fnmatch.fnmatchcase(value, pattern)


@given(st.lists(st.text("ab*", max_size=4), max_size=6), st.text("ab", max_size=6))
def test_one_of_some_patterns_fits_where_one_of_them_alone_does(
    patterns: list[str], value: str
) -> None:
    assert fits_one(patterns)(value) == any(fits(pattern, value) for pattern in patterns)


def test_a_hostile_pattern_takes_no_time() -> None:
    assert not fits("*a" * 500 + "b", "a" * 16_000)


def test_a_filter_without_conditions_takes_a_message_without_headers() -> None:
    assert compiled(MessageFilter())({}, dict)
    assert MessageFilter().takes_all


def test_the_effort_of_a_filter_is_what_is_looked_for_inside_of_values() -> None:
    many = tuple(f"{number}{'x' * 90}" for number in range(64))
    assert MessageFilter(subjects=many, headers={"a": many}).effort == (1, 0)
    ends = tuple(f"*{each}" for each in many) + tuple(f"{each}*" for each in many)
    assert MessageFilter(headers={"a": ends}).effort == (1, 0)
    inside = tuple(f"*{each}*" for each in many)
    assert MessageFilter(headers={"a": inside}).effort == (1 + sum(map(len, inside)) // 64, 0)
    of_payload = MessageFilter(payload={"$.a": ("x",)}).effort
    assert (of_payload.of(100), of_payload.of(1024 * 1024)) == (2, 66)
    of_payload = MessageFilter(payload={"$.a": inside}).effort
    assert of_payload.of(1024 * 1024) == 1 + 65 * (1 + sum(map(len, inside)) // 64)
