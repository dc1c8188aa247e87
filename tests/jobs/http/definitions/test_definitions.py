"""Producers, channels and consumers over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from headrace.cli import main
from headrace.clock import ManualClock
from headrace.jobs.models import ConsumerSettings, Options
from headrace.jobs.retry_policy import RetryPolicy
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.service.definitions import consumers
from jobs_world import PULL, World, http_of


async def test_what_a_put_returned_is_enough_for_the_next_put(world: World) -> None:
    for path in ("/producer/p", "/channel/c", "/channel/c/consumer/k"):
        first = await world.http.get(path)
        changed = await world.put(path, since=first.headers["last-modified"], name="new")
        assert changed.json()["Name"] == "new"
        # Within the same second, with nothing but the validator of the answer before.
        again = await world.put(path, since=changed.headers["last-modified"], name="newer")
        assert (await world.http.get(path)).headers["last-modified"] == again.headers[
            "last-modified"
        ]
        await world.put(path, 412, since=first.headers["last-modified"], name="late")
        assert (await world.http.get(path)).json()["Name"] == "newer"


async def test_changed_at_and_last_modified_say_the_same(world: World) -> None:
    from datetime import UTC, datetime
    from email.utils import parsedate_to_datetime

    response = await world.http.get("/channel/c")
    changed_at = datetime.fromisoformat(response.json()["ChangedAt"]).astimezone(UTC)
    assert changed_at.replace(microsecond=0) == parsedate_to_datetime(
        response.headers["last-modified"]
    )


async def test_changing_what_exists_needs_a_precondition(world: World) -> None:
    response = await world.put("/channel/c", 400, name="new")
    assert "If-Unmodified-Since" in response.text
    await world.put("/channel/other", since="Mon, 02 Jan 2006 15:04:05 GMT", name="new")


async def test_an_etag_serves_as_precondition(world: World) -> None:
    etag = (await world.http.get("/channel/c")).headers["etag"]
    for expect in (200, 412):
        response = await world.http.put(
            "/channel/c", data={"name": "n"}, headers={"If-Match": etag}
        )
        assert response.status_code == expect


async def test_an_update_keeps_the_token_it_does_not_give(world: World) -> None:
    for path in ("/producer/p", "/channel/c", "/channel/c/consumer/k"):
        since = (await world.http.get(path)).headers["last-modified"]
        response = await world.put(path, since=since, name="renamed")
        assert response.json()["Token"] == ""
    await world.broadcast()
    assert len(await world.queued()) == 1


async def test_a_new_token_replaces_the_old_one_at_once(world: World) -> None:
    since = (await world.http.get("/channel/c/consumer/k")).headers["last-modified"]
    response = await world.consumer("k", since=since, token="other")
    assert response.json()["Token"] == "other"
    refused = await world.http.get("/channel/c/consumer/k/queued-jobs", headers=PULL)
    assert refused.status_code == 403


@pytest.mark.one_database
async def test_tokens_are_shown_only_by_the_request_that_set_or_made_them(world: World) -> None:
    made = await world.consumer("fresh", type="pull")
    assert len(made.json()["Token"]) >= 24
    assert (await world.http.get("/channel/c/consumer/fresh")).json()["Token"] == ""


@pytest.mark.parametrize(("given", "shown"), [("", "push"), ("push", "push"), ("pull", "pull")])
@pytest.mark.one_database
async def test_types_of_a_new_consumer(world: World, given: str, shown: str) -> None:
    response = await world.consumer("n", type=given, callbackUrl="http://127.0.0.1/x")
    assert response.json()["Type"] == shown


async def test_another_type_is_refused_and_nothing_is_made(world: World) -> None:
    response = await world.consumer("n", 400, type="wrongType", callbackUrl="http://127.0.0.1/x")
    assert "type" in response.text
    assert (await world.http.get("/channel/c/consumer/n")).status_code == 404


async def test_an_update_without_type_keeps_it(world: World) -> None:
    since = (await world.http.get("/channel/c/consumer/k")).headers["last-modified"]
    assert (await world.consumer("k", since=since, name="n")).json()["Type"] == "pull"


@pytest.mark.parametrize(
    "url", ["", "relative", "/x", "ftp://h/x", "http://", "http://u:p@h/x", "http://h:99999/"]
)
@pytest.mark.one_database
async def test_a_push_consumer_needs_a_usable_url(world: World, url: str) -> None:
    response = await world.consumer("n", 400, type="push", callbackUrl=url)
    assert "callbackUrl" in response.text


@pytest.mark.one_database
async def test_only_forms_are_accepted_with_any_parameters(world: World) -> None:
    refused = await world.http.put("/channel/n", json={"name": "n"})
    assert refused.status_code == 415
    accepted = await world.http.put(
        "/channel/n",
        content=b"name=n",
        headers={"content-type": "application/x-www-form-urlencoded; charset=utf-8"},
    )
    assert accepted.status_code == 200


@pytest.mark.parametrize("name", ["a b", "%00", "ü", "..", "a" * 256, "a'b", "a%25b"])
@pytest.mark.one_database
async def test_ids_with_other_characters_are_refused(world: World, name: str) -> None:
    response = await world.http.put(f"/channel/{name}", data={"name": "n"})
    assert response.status_code in {400, 404}, response.text
    assert (await world.http.get("/channels")).json()["Result"] == ["/channel/c"]


@pytest.mark.parametrize("other", ["evt_1", "evt%251", "EVT-1"])
async def test_ids_are_compared_exactly(world: World, other: str) -> None:
    await world.broadcast(X_Broker_Message_ID="evt-1")
    response = await world.http.get(f"/channel/c/message/{other}")
    assert response.status_code == 404


@pytest.mark.parametrize(
    ("path", "name"),
    [("/producers", "producer"), ("/channels", "channel"), ("/channel/c/consumers", "consumer")],
)
async def test_pages_neither_skip_nor_repeat_in_both_directions(
    world: World, path: str, name: str
) -> None:
    prefix = "/channel/c/consumer" if name == "consumer" else f"/{name}"
    for number in range(60):
        await world.put(
            f"{prefix}/n{number:02}", type="pull"
        ) if name == "consumer" else await world.put(f"{prefix}/n{number:02}", name="x")
    pages, url = [], path
    while True:
        body = (await world.http.get(url)).json()
        assert body["Links"] is None
        if not body["Result"]:
            assert body["Pages"] == {}
            break
        pages.append(body)
        url = body["Pages"]["next"]
    seen = [link for page in pages for link in page["Result"]]
    assert len(seen) == 61
    assert seen == sorted(seen, reverse=True) or seen[-1].endswith(("/p", "/c", "/k"))
    assert len(set(seen)) == 61
    back = (await world.http.get(pages[2]["Pages"]["previous"])).json()
    assert back["Result"] == pages[1]["Result"]


@pytest.mark.parametrize(
    "cursor",
    [
        "eCcgT1IgJzEnPScxfDIwMjAtMDEtMDFUMDA6MDA6MDBa",  # x' OR '1'='1|2020-01-01T00:00:00Z
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "x",
        "",
        "ü",
    ],
)
@pytest.mark.one_database
async def test_a_cursor_not_made_here_is_refused(world: World, cursor: str) -> None:
    for path in ("/channels", "/channel/c/messages", "/channel/c/consumer/k/dlq", "/v2/events"):
        response = await world.http.get(path, params={"next": cursor})
        assert response.status_code == 400
        assert "next" in response.text


async def test_a_cursor_of_another_list_and_two_cursors_are_refused(world: World) -> None:
    cursor = (await world.http.get("/channels")).json()["Pages"]["next"].partition("=")[2]
    assert (await world.http.get("/producers", params={"next": cursor})).status_code == 400
    both = await world.http.get("/channels", params={"next": cursor, "previous": cursor})
    assert both.status_code == 400


async def test_deleting_a_consumer_needs_the_precondition_and_takes_its_jobs(world: World) -> None:
    await world.broadcast()
    path = "/channel/c/consumer/k"
    assert (await world.http.delete(path)).status_code == 400
    since = {"If-Unmodified-Since": "Mon, 02 Jan 2006 15:04:05 GMT"}
    assert (await world.http.delete(path, headers=since)).status_code == 412
    since = {"If-Unmodified-Since": (await world.http.get(path)).headers["last-modified"]}
    assert (await world.http.delete(path, headers=since)).status_code == 204
    assert (await world.http.get(path)).status_code == 404
    assert (await world.http.delete(path, headers=since)).status_code == 404
    assert (await world.http.get("/job-status")).json() == {}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/producer/none"),
        ("GET", "/channel/none"),
        ("GET", "/channel/none/consumers"),
        ("GET", "/channel/none/consumer/k"),
        ("GET", "/channel/c/consumer/none"),
        ("GET", "/channel/none/messages"),
        ("GET", "/channel/c/message/none"),
        ("GET", "/channel/none/message/none"),
        ("GET", "/channel/none/messages-status"),
        ("GET", "/channel/none/scheduled-messages"),
        ("GET", "/channel/c/scheduled-message/none"),
        ("DELETE", "/channel/c/scheduled-message/none"),
        ("GET", "/channel/none/consumer/k/dlq"),
        ("GET", "/channel/c/consumer/none/dlq"),
        ("GET", "/channel/none/consumer/k/queued-jobs"),
        ("GET", "/v2/channel/none/consumer/k"),
        ("GET", "/v2/channel/c/consumer/none"),
        ("GET", "/v2/channel/c/consumer/k/job/77"),
        ("PUT", "/channel/none/consumer/k"),
        ("DELETE", "/channel/none/consumer/k"),
    ],
)
@pytest.mark.one_database
async def test_an_unknown_part_of_the_path_is_404(world: World, method: str, path: str) -> None:
    data = {"type": "pull"} if method == "PUT" else None
    response = await world.http.request(method, path, data=data)
    assert response.status_code == 404, response.text


async def test_concurrent_changes_of_different_settings_are_all_kept(
    world: World, service_on: Callable[..., Runtime], clock: ManualClock
) -> None:
    """Two processes, each changing what the other does not."""
    other = service_on(clock=clock)
    await other.start()
    async with http_of(other) as second:
        path = "/v2/channel/c/consumer/k"
        for round_ in range(1, 6):
            wanted: dict[str, Any] = {
                "timeout_s": 10.0 + round_,
                "concurrency": round_,
                "rate_per_s": float(round_),
                "sign": bool(round_ % 2),
                "outcomes": bool(round_ % 2),
            }
            answers = await asyncio.gather(
                *(
                    (world.http, second)[number % 2].patch(path, json={"settings": {name: value}})
                    for number, (name, value) in enumerate(wanted.items())
                )
            )
            assert {answer.status_code for answer in answers} == {200}
            settings = (await world.http.get(path)).json()["settings"]
            assert {name: settings[name] for name in wanted} == wanted
    await other.close()


@pytest.mark.one_database
async def test_a_rotation_needs_no_body(world: World) -> None:
    path = "/v2/channel/c/consumer/k"
    for what in ("secret", "token"):
        made = await world.http.post(f"{path}/{what}")
        assert made.status_code == 200, made.text
        assert made.json()[what]
    again = await world.http.post(f"{path}/secret")
    assert again.json()["live"] == 2, "the one before signs, too"
    operation = (await world.http.get("/openapi.json")).json()["paths"][
        "/v2/channel/{channelId}/consumer/{consumerId}/secret"
    ]["post"]
    assert operation["requestBody"]["required"] is False


@pytest.mark.one_database
async def test_secrets_and_signing_have_commands(
    world: World, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run(*words: str) -> str:
        assert await asyncio.to_thread(main, ["jobs", *words, "c", "k", "--url", address]) == 0
        return capsys.readouterr().out

    async def kept() -> tuple[list[str], bool]:
        found = await world.runtime.database.read(lambda tx: consumers.find_consumer(tx, "c", "k"))
        return list(found.secrets), found.settings.sign

    first, told = (await run("secret")).splitlines()
    assert told == "the one before signs, too, until the next one"
    second = json.loads(await run("secret", "--json"))["secret"]
    assert set((await kept())[0]) == {first, second}
    only = (await run("secret", "--only")).splitlines()[0]
    assert (await kept())[0] == [only]
    assert (await run("sign", "--off")) == "c/k: calls are not signed\n"
    assert not (await kept())[1]
    assert (await run("sign")) == "c/k: calls are signed\n"
    assert (await kept())[1]


async def test_of_two_rotations_at_once_each_keeps_the_secret_before_its_own(world: World) -> None:
    path = "/v2/channel/c/consumer/k/secret"

    async def rotate() -> str:
        answer = await world.http.post(path, json={"keep_previous": True})
        assert answer.status_code == 200
        return str(answer.json()["secret"])

    made = await asyncio.gather(rotate(), rotate(), rotate())
    kept = (
        await world.runtime.database.read(lambda tx: consumers.find_consumer(tx, "c", "k"))
    ).secrets
    assert len(kept) == 2
    assert set(kept) < set(made), "the last two, whichever order they came in"


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/producer/q", "tokn"),
        ("/channel/d", "nmae"),
        ("/channel/c/consumer/h", "callbackURL"),
        ("/channel/c/consumer/h", "max_retries"),
    ],
)
@pytest.mark.one_database
async def test_a_field_that_is_not_there_is_refused_by_name(
    world: World, path: str, field: str
) -> None:
    form = {"token": "t", field: "5"}
    response = await world.http.put(path, data=form, headers={"Accept": "application/json"})
    assert (response.status_code, response.json()["field"]) == (400, field)
    assert "token, name" in response.json()["message"]
    assert (await world.http.get(path)).status_code == 404


async def test_the_defaults_are_for_new_consumers_only(world: World) -> None:
    path = "/v2/channel/c/consumer/k"

    def age(tx: Any) -> None:
        consumer = consumers.find_consumer(tx, "c", "k")
        # As it was stored when the defaults were these.
        old = RetryPolicy(kind="schedule", cap_s=3600)
        settings = ConsumerSettings(retry=old)
        change = consumers.ConsumerChange(max_retries=5, settings=settings)
        consumers.change_consumer(
            tx, "c", consumer.consumer_id, lambda _: change, None, tx.now_us()
        )

    await world.runtime.database.write(age)
    await world.consumer("k", 200, name="other", since=await changed(world))
    detail = (await world.http.patch(path, json={"settings": {"concurrency": 3}})).json()
    assert (detail["max_retries"], detail["settings"]["retry"]["kind"]) == (5, "schedule")
    world.runtime.options = Options()
    await world.consumer("new", type="pull")
    new = (await world.http.get("/v2/channel/c/consumer/new")).json()
    assert (new["max_retries"], new["settings"]["retry"]["kind"]) == (17, "exponential")
    given = {"settings": {"retry": {"delays_s": [1, 2]}}}
    patched = (await world.http.patch("/v2/channel/c/consumer/new", json=given)).json()
    assert patched["settings"]["retry"]["kind"] == "schedule", (
        "a list of delays is meant to be used"
    )


async def changed(world: World) -> str:
    return (await world.http.get("/channel/c/consumer/k")).headers["Last-Modified"]
