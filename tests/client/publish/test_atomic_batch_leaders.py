"""Atomic batches in a cluster where one leads and another one, who led before, answers as well."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from headrace.api.messages import PubAck
from headrace.client import AtomicBatch, BatchRefusedError, JetStream, Stream, connect
from headrace.client.net.handshake import ServerInfo
from headrace.embedded import Broker
from headrace.errors import JetStreamApiError, RequestTimeoutError
from headrace.wire.frames import MSG

BEHIND = (400, 10071, "wrong last sequence: 1")
INCOMPLETE = (400, 10176, "batch publish is incomplete")
NOT_LEADER = (503, 0, "raft: not leader")
LAST = 2
DOUBTS = 3


def refusal(reason: tuple[int, int, str]) -> bytes:
    code, err_code, description = reason
    error = {"code": code, "err_code": err_code, "description": description}
    return json.dumps({"error": error, "stream": "S", "seq": 0}).encode()


class Stale:
    """Answers the messages of a batch before the stream does, as one who led before; counts the attempts."""

    def __init__(self, batch: AtomicBatch, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batch = batch
        self.attempts = 0
        self.answers: list[dict[int, bytes]] = []
        """For each attempt, what is said to the message of a number."""
        self.lost = False  # whether the stream hears nothing
        self._send = batch._session.send_once
        monkeypatch.setattr(batch._session, "send_once", self.send)

    def send(self, commands: bytes) -> None:
        self.attempts += 1
        if not self.lost:
            self._send(commands)
        for number, payload in (self.answers.pop(0) if self.answers else {}).items():
            subject = b"%b%d" % (self.batch._prefix, number)
            self.batch._receive([(MSG, subject, b"1", b"", b"", payload)])


@pytest.fixture
async def js(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[JetStream]:
    async with Broker(port=-1) as broker, connect(broker.client_url) as connection:
        session = connection._session
        session.info = ServerInfo(cluster="three", api_lvl=2)
        monkeypatch.setattr("headrace.client.net.leaders.PAUSE_FIRST_S", 0.001)
        monkeypatch.setattr("headrace.client.net.leaders.PAUSE_MAX_S", 0.01)
        yield connection.jetstream(timeout=5, delivery_timeout=10)


@pytest.fixture
async def stream(js: JetStream) -> Stream:
    stream = await js.create_stream(
        name="S", subjects=["s"], storage="memory", allow_atomic=True, num_replicas=1
    )
    await js.publish("s")
    await js.publish("s")
    return stream


def three(js: JetStream, **options: int) -> AtomicBatch:
    batch = js.batch()
    for number in range(LAST + 1):
        batch.add("s", b"%d" % number, **(options if not number else {}))  # type: ignore[arg-type]
    return batch


async def whole(stream: Stream, ack: PubAck) -> None:
    """Stored once, and acknowledged as what was stored."""
    last = await stream.get_message(5)
    assert (ack.seq, ack.count, ack.batch) == (5, 3, last.headers["Nats-Batch-Id"])
    assert (await stream.info()).state.messages == 5


@pytest.mark.parametrize("expected", [{"expected_last_sequence": 2}, {}])
@pytest.mark.parametrize("reason", [BEHIND, INCOMPLETE, NOT_LEADER])
async def test_a_batch_that_one_refuses_and_the_leader_stores_is_stored(
    js: JetStream,
    stream: Stream,
    monkeypatch: pytest.MonkeyPatch,
    reason: tuple[int, int, str],
    expected: dict[str, int],
) -> None:
    if reason is BEHIND and not expected:
        return
    batch = three(js, **expected)
    stale = Stale(batch, monkeypatch)
    said_to = 0 if reason is BEHIND else LAST
    stale.answers = [{said_to: refusal(reason), LAST: refusal(reason)}]
    await whole(stream, await batch.commit())
    assert stale.attempts == 1


async def test_the_acknowledgement_counts_whoever_refused_a_message(
    js: JetStream, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = three(js)
    stale = Stale(batch, monkeypatch)
    stale.answers = [{0: refusal(NOT_LEADER)}]
    await whole(stream, await batch.commit())
    assert stale.attempts == 1


async def test_what_is_refused_after_an_election_is_refused(
    js: JetStream, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = three(js, expected_last_sequence=7)
    stale = Stale(batch, monkeypatch)
    stale.lost = True
    wrong = refusal((400, 10071, "wrong last sequence: 8"))
    stale.answers = [{LAST: refusal(NOT_LEADER)}, {LAST: refusal(INCOMPLETE)}, *[{LAST: wrong}] * 9]
    with pytest.raises(BatchRefusedError, match="wrong last sequence: 8"):
        await batch.commit()
    assert stale.attempts == 2 + 1 + DOUBTS
    assert (await stream.info()).state.messages == 2


async def test_what_is_refused_at_once_is_not_sent_again(
    js: JetStream, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = three(js, expected_last_sequence=1)
    stale = Stale(batch, monkeypatch)
    with pytest.raises(BatchRefusedError, match="wrong last sequence: 2"):
        await batch.commit()
    assert stale.attempts == 1
    assert (await stream.info()).state.messages == 2


async def test_a_question_without_an_answer_leaves_a_refusal_what_it_is(
    js: JetStream, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = three(js, expected_last_sequence=7)
    stale = Stale(batch, monkeypatch)
    stale.lost = True
    wrong = refusal((400, 10071, "wrong last sequence: 8"))
    stale.answers = [{LAST: refusal(NOT_LEADER)}, *[{LAST: wrong}] * 9]
    find, unheard = batch._find, [True, False, True]

    async def deaf() -> PubAck | None:
        if unheard and unheard.pop(0):
            raise RequestTimeoutError("no answer")
        return await find()

    monkeypatch.setattr(batch, "_find", deaf)
    with pytest.raises(JetStreamApiError, match="wrong last sequence: 8"):
        await batch.commit()
    assert not unheard
    assert stale.attempts <= 1 + 2 + DOUBTS


async def test_who_led_before_may_say_once_more_that_nothing_is_stored(
    js: JetStream, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = three(js, expected_last_sequence=2)
    stale = Stale(batch, monkeypatch)
    stale.answers = [{0: refusal(BEHIND), LAST: refusal(BEHIND)}]
    find, old = batch._find, [True, True, True]

    async def before() -> PubAck | None:
        return None if old and old.pop() else await find()

    monkeypatch.setattr(batch, "_find", before)
    await whole(stream, await batch.commit())
    assert stale.attempts == 2
