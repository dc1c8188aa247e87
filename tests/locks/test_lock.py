from __future__ import annotations

import asyncio
from typing import Any

import pytest

import chaos
from headrace.client import KeyNotFoundError, KeyValue, connect
from headrace.errors import ConfigurationError, RequestTimeoutError
from headrace.locks import Held, Lock, LockLostError, lead
from waiting import elapse, until

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]

QUICK: dict[str, Any] = {
    "reconnect_wait": 0.01,
    "reconnect_wait_max": 0.02,
    "request_timeout": 0.3,
    "delivery_timeout": 0.3,
}


async def test_one_holds_it_at_a_time_and_tokens_grow(bucket: KeyValue) -> None:
    tokens: list[int] = []
    inside = 0

    async def work() -> None:
        nonlocal inside
        async with Lock(bucket, "k") as held:
            inside += 1
            assert inside == 1
            assert held.is_held
            held.check()
            tokens.append(held.token)
            await asyncio.sleep(0)
            inside -= 1

    async with asyncio.timeout(20):
        await asyncio.gather(*(work() for _ in range(5)))
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 5


async def test_it_is_renewed_while_it_is_held_and_its_token_stays(bucket: KeyValue) -> None:
    async with Lock(bucket, "k", ttl=2) as held:
        first = await bucket.get("k")
        assert first.value.startswith(b"headrace ")
        revision = held.token

        async def is_renewed() -> bool:
            return (await bucket.get("k")).revision > revision + 2

        await until(is_renewed, within=10)  # longer than ttl
        assert held.is_held
        assert held.token == revision
    assert await bucket.keys() == []


async def test_who_waits_gets_it_at_once_when_it_is_left(bucket: KeyValue) -> None:
    async with asyncio.timeout(5):
        async with Lock(bucket, "k", ttl=60):
            waiting = asyncio.create_task(Lock(bucket, "k", ttl=60).__aenter__())
            await asyncio.sleep(0)
        held = await waiting
    assert held.is_held
    for task in asyncio.all_tasks():
        if task.get_name() == "lock k":
            task.cancel()


async def test_a_holder_that_is_gone_frees_it_after_its_time(bucket: KeyValue) -> None:
    await bucket.create("k", b"somebody who died", ttl=2)
    async with asyncio.timeout(15), Lock(bucket, "k", ttl=2) as held:
        assert held.is_held


async def test_a_key_that_somebody_takes_away_cancels_the_block_which_raises(
    bucket: KeyValue,
) -> None:
    async with asyncio.timeout(10):
        with pytest.raises(LockLostError, match="somebody else has it"):
            async with Lock(bucket, "k", ttl=2) as held:
                await bucket.put("k", b"mine now")
                await asyncio.Event().wait()
    assert not held.is_held
    with pytest.raises(LockLostError):
        held.check()
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
    assert (await bucket.get("k")).value == b"mine now"


async def test_a_holder_that_is_cut_off_is_told_before_anybody_else_can_have_it(
    bucket: KeyValue, proxy: chaos.ChaosProxy
) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(20), connect(proxy.url, **QUICK) as connection:
        far = await connection.jetstream().key_value(bucket.bucket)
        with pytest.raises(LockLostError, match="not renewed in time"):
            async with Lock(far, "k", ttl=3):
                proxy.freeze()
                await asyncio.Event().wait()
        told = loop.time()
        async with Lock(bucket, "k", ttl=3):
            assert loop.time() >= told
        proxy.is_frozen = False
        proxy.reset()


async def test_what_the_block_raises_comes_out_and_the_lock_is_free(bucket: KeyValue) -> None:
    with pytest.raises(ValueError, match="mine"):
        async with Lock(bucket, "k"):
            raise ValueError("mine")
    assert await bucket.keys() == []


async def test_who_is_cancelled_lets_go_and_is_cancelled(bucket: KeyValue) -> None:
    begun = asyncio.Event()

    async def work() -> None:
        async with Lock(bucket, "k"):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await bucket.keys() == []


async def test_one_of_many_leads_and_another_one_when_it_loses_the_lead(bucket: KeyValue) -> None:
    led: list[tuple[str, int]] = []
    over = asyncio.Event()

    async def stand(name: str) -> str:
        async def work(held: Held) -> str:
            led.append((name, held.token))
            await over.wait()
            return name

        return await lead(Lock(bucket, "leader", ttl=2, holder=name), work)

    async with asyncio.timeout(20):
        standing = [asyncio.create_task(stand(name)) for name in ("a", "b", "c")]
        await until(lambda: len(led) == 1)
        await bucket.delete("leader")
        await until(lambda: len(led) == 2)
        assert led[0][1] < led[1][1]
        over.set()
        assert sorted(await asyncio.gather(*standing)) == ["a", "b", "c"]


@pytest.mark.parametrize("ttl", [1, 0, 2.5, True, "5"])
async def test_a_time_that_cannot_be_is_refused(bucket: KeyValue, ttl: Any) -> None:
    with pytest.raises(ConfigurationError, match="whole seconds"):
        Lock(bucket, "k", ttl=ttl)


@pytest.mark.parametrize(
    "renewal_too", [False, True], ids=["renewed at once", "after another loss"]
)
async def test_an_attempt_without_an_answer_long_ago_does_not_spoil_a_later_one(
    bucket: KeyValue, monkeypatch: pytest.MonkeyPatch, renewal_too: bool
) -> None:
    """The first attempt is never stored, the last one is, and neither has an answer."""
    create, update = bucket.create, bucket.update
    before = asyncio.Event()
    attempts, renewals = 0, 0

    async def unanswered(key: str, value: bytes, **options: Any) -> int:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            before.set()
            raise RequestTimeoutError("no answer")
        await create(key, value, **options)  # KeyExistsError while somebody has it
        raise RequestTimeoutError("no answer")

    async def renewed(key: str, value: bytes, revision: int, **options: Any) -> int:
        nonlocal renewals
        renewals += 1
        if renewal_too and renewals == 1:
            raise RequestTimeoutError("no answer")
        return await update(key, value, revision, **options)

    somebody_elses = await create("a", b"somebody")
    monkeypatch.setattr(bucket, "create", unanswered)
    monkeypatch.setattr(bucket, "update", renewed)
    lock = Lock(bucket, "a", ttl=2)
    async with asyncio.timeout(20):
        waiting = asyncio.create_task(lock.__aenter__())
        await before.wait()
        await elapse(2.5, "longer than a lock lasts, so that the first attempt is of no use")
        await bucket.delete("a", revision=somebody_elses)
        held = await waiting
        held.check()
        assert lock._key is not None
        assert held.token > somebody_elses
        assert (await bucket.get("a")).value == lock._key._value
        await lock.__aexit__(None, None, None)
    with pytest.raises(KeyNotFoundError):
        await bucket.get("a")
