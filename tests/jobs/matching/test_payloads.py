"""Jobs and messages by values in their payloads: searched, cancelled, replayed, filtered for consumers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli import main
from headrace.jobs import limits
from headrace.jobs.client import OutgoingMessage
from headrace.jobs.matching.patterns import MISSING
from headrace.jobs.matching.payloads import document_of, fitting_paths
from headrace.jobs.models import NewMessage
from headrace.jobs.service.publishing import publishing
from jobs_world import PRODUCER, World, held, jobs_client

FIND = "/v2/channel/c/jobs"
TOKENS: dict[str, Any] = {"channel_token": "ct", "producer": "p", "producer_token": "pt"}


async def orders(world: World, *ids: Any) -> None:
    for each in ids:
        await world.broadcast(json.dumps({"order": {"id": each}}))


async def search(world: World, expect: int = 200, /, **query: Any) -> Any:
    response = await world.http.get(FIND, params=query)
    assert response.status_code == expect, response.text
    return response.json()


async def walk(world: World, **query: Any) -> tuple[list[int], int]:
    """The ids on all pages, and how many pages there were; each is also reached backwards."""
    page, shown, pages = await search(world, **query), list[int](), 1
    while True:
        shown += [int(job["id"]) for job in page["jobs"]]
        if "next" not in page["pages"]:
            return shown, pages
        before = page
        page = (await world.http.get(page["pages"]["next"])).json()
        pages += 1
        back = (await world.http.get(page["pages"]["previous"])).json()
        assert {job["id"] for job in back["jobs"]} <= set(map(str, shown))
        assert {job["id"] for job in before["jobs"]} <= {job["id"] for job in back["jobs"]}


async def test_jobs_are_found_by_what_is_at_a_path_of_their_payloads(world: World) -> None:
    await world.consumer("h", type="pull", token="ht")
    await orders(world, 7, 8, "7", None, [7])
    await world.broadcast("no JSON")
    for pattern, count in (("7", 4), ("8", 2), ("null", 2), ("*", 8), ("9", 0)):
        found = await search(world, payload=f"$.order.id={pattern}")
        assert len(found["jobs"]) == count, pattern
    both = {"payload": ["$.order.id=7", "$.order.id=8"]}
    assert len((await search(world, **both, consumer="h"))["jobs"]) == 3
    assert (await search(world, payload=["$.order.id=7", "$.land=*"]))["jobs"] == []


async def test_a_search_looks_into_so_many_and_goes_on_where_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PAGE_SIZE", 2)
    monkeypatch.setattr(limits, "SEARCH_ROWS", 5)
    await world.consumer("h", type="pull", token="ht")
    await orders(world, *(number % 4 for number in range(20)))
    everything, _ = await walk(world, payload="$.order.id=*")
    assert everything == sorted(everything, reverse=True)
    assert len(everything) == 40
    some, pages = await walk(world, payload="$.order.id=3", consumer="k")
    assert len(some) == 5
    assert pages == 5, "the fourth ends with the first job of all, and nobody knows yet that it is"
    nothing, pages = await walk(world, payload="$.order.id=x")
    assert nothing == []
    assert pages >= 8
    monkeypatch.setattr(limits, "SEARCH_ROWS", 1000)
    monkeypatch.setattr(limits, "SEARCH_BYTES_MAX", 40)
    by_bytes, pages = await walk(world, payload="$.order.id=3", consumer="k")
    assert by_bytes == some
    assert pages >= 10
    monkeypatch.setattr(limits, "SEARCH_BYTES_MAX", 1)
    assert (await walk(world, payload="$.order.id=3", consumer="k"))[0] == some


@pytest.mark.one_database
async def test_the_links_of_a_search_keep_what_was_searched(world: World) -> None:
    await world.broadcast(json.dumps({"a": "b&c=d e"}))
    page = await search(world, payload=["$.a=b&c=d*", "$.a=ä"], state="QUEUED,DEAD")
    again = (await world.http.get(page["pages"]["previous"])).json()
    assert again["jobs"] == []
    other = page["pages"]["previous"].replace("%C3%A4", "o")
    refused = await world.http.get(other)
    assert refused.json()["code"] == "invalid_cursor", "it is the cursor of another list"


async def test_what_matches_is_cancelled_in_slices_after_a_dry_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SEARCH_ROWS", 3)
    await orders(world, *(number % 2 for number in range(10)))
    await world.claim(2)
    body = {"payload": {"$.order.id": ["1"]}, "consumer": "k"}
    for dry in (True, False):
        done = await world.http.post(f"{FIND}/cancel", json={**body, "dry_run": dry})
        assert done.json()["waiting"] == 4, done.text
        assert done.json()["running"] == 1
    left = await world.payloads()
    assert {json.loads(each)["order"]["id"] for each in left} == {0}
    told = (await world.http.get("/v2/audit")).json()["entries"][0]
    assert told["detail"] == "consumer: k, payload: $.order.id", "values of payloads are not told"


async def test_what_matches_is_replayed_and_nothing_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SEARCH_ROWS", 2)
    await orders(world, *range(7))
    jobs = await world.claim(7)
    await world.lease("complete", jobs=held(*jobs))
    body = {
        "since": "2000-01-01T00:00:00Z",
        "payload": {"$.order.id": ["2", "5", "6"]},
        "rate_per_s": 1,
    }
    for dry in (True, False):
        done = (await world.http.post("/v2/channel/c/replay", json={**body, "dry_run": dry})).json()
        assert (done["delivered"], done["dead"]) == (3, 0)
    world.clock.advance(10)
    claimed = await world.claim(9)
    assert [job["id"] for job in claimed] == [jobs[number]["id"] for number in (2, 5, 6)]


async def test_a_consumer_gets_messages_with_the_values_it_wants(world: World) -> None:
    await world.consumer("all", type="pull", token="kt")
    await world.set_filter(payload={"$.land": ["de", "a*"], "$.lines[0].sku": ["*"]})
    fitting = ['{"land":"de","lines":[{"sku":1}]}', '{"land":"at","lines":[{"sku":"x"},2]}']
    others = ['{"land":"fr","lines":[{"sku":1}]}', '{"land":"de","lines":[]}', "no JSON", "[1]"]
    for payload in (*fitting, *others):
        await world.broadcast(payload)
    batch = [{"payload": each} for each in (fitting[0], others[0])]
    made = await world.http.post(
        "/v2/channel/c/messages/batch", json={"messages": batch}, headers=PRODUCER
    )
    assert [each["jobs"] for each in made.json()["messages"]] == [2, 1]
    response = await world.http.post("/v2/channel/c/messages", content=fitting[1], headers=PRODUCER)
    assert response.json()["jobs"] == 2
    assert await world.payloads() == [*fitting, *fitting]
    assert len(await world.payloads("all")) == 9
    await world.set_filter(payload={})
    await world.broadcast("no JSON")
    assert (await world.payloads())[-1] == "no JSON"


async def test_scheduled_and_fed_messages_are_filtered_by_their_payloads(world: World) -> None:
    await world.set_filter(payload={"$.a": ["1"]})
    for number in (1, 2):
        await world.broadcast(f'{{"a":{number}}}', X_Broker_Scheduled_For="2999-01-01T00:00:00Z")
    later = world.runtime.now_us() + 10**18
    done = await world.runtime.database.write(
        lambda tx: publishing.dispatch_due(tx, publishing.find_due(tx, later), later)
    )
    assert (done.messages, dict(done.jobs)) == (2, {"c": 1})
    messages = [
        NewMessage(payload=f'{{"a":{number}}}'.encode(), message_id=f"s{number}")
        for number in (1, 2, 1)
    ]
    made = await world.runtime.database.write(
        lambda tx: publishing.feed(tx, "c", messages, tx.now_us())
    )
    assert made == (2, 1)


@pytest.mark.one_database
@pytest.mark.parametrize(
    "payload",
    [
        {"order.id": ["1"]},
        {"$": ["1"]},
        {"$.a": []},
        {"$.a": ["1"] * 65},
        {"$.a": ["1" * 1025]},
        {f"$.a{number}": ["1"] for number in range(17)},
    ],
)
async def test_what_means_nothing_is_refused_by_its_field(
    world: World, payload: dict[str, Any]
) -> None:
    assert (await world.set_filter(400, payload=payload))["field"] == "filter.payload"
    for path, body in (
        ("jobs/cancel", {"payload": payload}),
        ("replay", {"payload": payload, "since": "2000-01-01T00:00:00Z"}),
    ):
        refused = await world.http.post(f"/v2/channel/c/{path}", json=body)
        assert (refused.status_code, refused.json()["field"]) == (400, "payload"), path


@pytest.mark.one_database
async def test_a_search_is_refused_that_names_no_pattern_or_two_things(world: World) -> None:
    assert "PATH=PATTERN" in (await search(world, 400, payload="$.a"))["message"]
    payload = {"$.a": ["1"]}
    for path, body in (
        ("jobs/cancel", {"payload": payload, "job": "1"}),
        ("replay", {"payload": payload, "messages": ["m"]}),
    ):
        refused = await world.http.post(f"/v2/channel/c/{path}", json=body)
        assert (refused.status_code, refused.json()["code"]) == (400, "two_filters"), path


async def test_the_client_searches_cancels_and_replays_by_payload(world: World) -> None:
    async with jobs_client(world.runtime) as client:
        made = [OutgoingMessage(payload=f'{{"a":"{each}"}}'.encode()) for each in "xyx"]
        await client.publish_batch("c", made, **TOKENS)
        found = [job async for job in client.find_jobs("c", payload={"$.a": "x"})]
        assert len(found) == 2
        both = client.find_jobs("c", states=["QUEUED"], payload={"$.a": ["x", "y"]})
        assert len([job async for job in both]) == 3
        done = await client.cancel_jobs("c", payload={"$.a": "x"})
        assert done["waiting"] == 2
        done = await client.replay_jobs("c", since="2000-01-01T00:00:00Z", payload={"$.a": "x"})
        assert done["dead"] == 0, "what somebody cancelled is left"
        await client.patch_consumer("c", "k", settings={"filter": {"payload": {"$.a": ["y"]}}})
        made_again = await client.publish_batch("c", made, **TOKENS)
        assert [each["jobs"] for each in made_again] == [0, 1, 0]


@pytest.mark.one_database
async def test_commands_take_values_of_payloads(
    world: World, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run(*typed: str) -> tuple[int, str]:
        code = await asyncio.to_thread(main, ["jobs", *typed, "--url", address])
        said = capsys.readouterr()
        return code, said.out + said.err

    await orders(world, 7, 8)
    code, said = await run("find", "c", "--payload", "$.order.id=7")
    assert (code, said.count("QUEUED")) == (0, 1)
    code, said = await run("cancel", "c", "--payload", "$.order.id=7", "--force")
    assert (code, said.startswith("1 cancelled")) == (0, True)
    times = ("--since", "2000-01-01T00:00:00Z", "--dry-run")
    code, said = await run("replay", "c", "--payload", "$.order.id=8", *times)
    assert "0 delivered and 0 dead" in said
    code, said = await run("filter", "c", "k", "--payload", "$.order.id=7*")
    assert "$.order.id: 7*" in said
    code, said = await run("find", "c", "--payload", "order")
    assert code != 0
    assert "PATH=PATTERN" in said
    code, said = await run("find", "c", "--payload", "order=1")
    assert code != 0
    assert "no path" in said


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
def test_any_value_at_a_path_is_compared_and_raises_nothing(value: Any) -> None:
    document = document_of(json.dumps({"a": value}).encode())
    fits = fitting_paths({"$.a": ["*"]})(document)
    assert fits == (document is not MISSING and not isinstance(value, list))


@pytest.mark.parametrize("text", [b"1" * 5000, b"-1e999", b"1e-999", b'"\\ud800"', b"[" * 5000])
def test_extreme_documents_fit_or_do_not(text: bytes) -> None:
    fitting_paths({"$.a": ["*"]})(document_of(b'{"a":' + text + b"}"))
