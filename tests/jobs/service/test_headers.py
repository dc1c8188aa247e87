"""Headers of messages, on both databases: what comes in is what filters see and workers get."""

from __future__ import annotations

from jobs_world import PRODUCER, World, held


async def test_text_that_headers_carry_is_stored_filtered_and_handed_out_as_it_is(
    world: World,
) -> None:
    text = "Zoë €\t1 заказ 😀 \u0085"
    await world.set_filter(headers={"X-Name": ["Zoë €*заказ*"]}, subjects=["заказ.>"])
    given = {
        **PRODUCER,
        "X-Broker-Metadata-Headers": "X-Name",
        "X-Name": text,
        "X-Broker-Subject": "заказ.1",
        "X-Broker-Ordering-Key": "Zoë",
        "Content-Type": 'text/plain; name="Zoë"',
    }
    headers = {name.encode(): value.encode() for name, value in given.items()}
    sent = await world.http.post("/v2/channel/c/messages", content=b"1", headers=headers)
    assert (sent.status_code, sent.json()["jobs"]) == (201, 1), sent.text
    one = {
        "payload": "2",
        "headers": {"X-Name": text},
        "subject": "заказ.1",
        "ordering_key": "Zoë",
        "content_type": 'text/plain; name="Zoë"',
    }
    body = {"messages": [one, {**one, "headers": {"X-Name": "Zoe"}}]}
    batch = await world.http.post("/v2/channel/c/messages/batch", json=body, headers=PRODUCER)
    assert [each["jobs"] for each in batch.json()["messages"]] == [1, 0]
    for _ in range(2):  # of one key one after the other
        (job,) = await world.claim(9)
        assert job["message"]["headers"]["X-Name"] == text
        assert job["message"]["content_type"] == 'text/plain; name="Zoë"'
        await world.lease("complete", jobs=held(job))
