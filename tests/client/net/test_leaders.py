"""Calls and awaited publishes while there is no leader: what is made again, what is not, and until when."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from headrace import sync
from headrace.api.base import encode
from headrace.api.errors import is_leaderless
from headrace.api.streams import StreamNamesResponse
from headrace.client import JetStream, connect
from headrace.client.events import Event, LeaderWaitOver, WaitingForLeader
from headrace.client.metrics import prometheus
from headrace.client.net.handshake import ServerInfo
from headrace.client.publish.stream_of_subject import BEHIND_MAX
from headrace.embedded import Broker
from headrace.errors import (
    ConfigurationError,
    HeadraceError,
    JetStreamApiError,
    NoRespondersError,
    RequestTimeoutError,
    ServerError,
)
from headrace.wire.frames import MSG, Frame

NOT_NOW = b'{"error":{"code":503,"err_code":10008,"description":"temporarily unavailable"}}'
DONE = b'{"success":true}'
STORED = b'{"stream":"S","seq":7}'
INFO = b'{"config":{"name":"S"},"created":"2026-01-01T00:00:00Z","state":{}}'
THERE = encode(StreamNamesResponse(total=1, streams=("S",)))
NOWHERE = encode(StreamNamesResponse())
NOBODY = NoRespondersError("nobody listens")
SILENCE = RequestTimeoutError("no answer")

Script = list[bytes | HeadraceError]


class Scripted:
    """A context whose requests are answered by a script, in a cluster or not; and what was asked."""

    def __init__(self, js: JetStream, monkeypatch: pytest.MonkeyPatch, cluster: str) -> None:
        self.asked: list[str] = []
        self.script: Script = []
        self.events: list[Event] = []
        self.js = js
        self.session = js.connection._session
        self.session.info = ServerInfo(cluster=cluster)
        monkeypatch.setattr(self.session.requests, "ask", self._ask)
        monkeypatch.setattr("headrace.client.net.leaders.PAUSE_FIRST_S", 0.001)
        monkeypatch.setattr("headrace.client.net.leaders.PAUSE_MAX_S", 0.01)

    async def _ask(self, subject: str, headers: bytes, payload: bytes, timeout: float) -> Frame:
        self.asked.append(subject)
        answer = self.script.pop(0)
        if isinstance(answer, HeadraceError):
            raise answer
        return (MSG, subject.encode(), b"1", b"", b"", answer)


@pytest.fixture
async def make(monkeypatch: pytest.MonkeyPatch) -> Any:
    events: list[Event] = []
    async with (
        Broker(port=-1) as broker,
        connect(broker.client_url, on_event=events.append) as connection,
    ):

        def scripted(script: Script, *, cluster: str = "three", **options: Any) -> Scripted:
            made = Scripted(connection.jetstream(**options), monkeypatch, cluster)
            made.script, made.events = script, events
            events.clear()
            return made

        yield scripted


Make = Callable[..., Scripted]


async def test_a_call_that_nobody_executed_is_made_again_whatever_it_is(make: Make) -> None:
    made = make([NOT_NOW, NOT_NOW, DONE])
    await made.js.delete_stream("S")
    assert made.asked == ["$JS.API.STREAM.DELETE.S"] * 3
    began, ended = made.events
    assert isinstance(began, WaitingForLeader)
    assert isinstance(ended, LeaderWaitOver)
    assert (ended.of, ended.found) == (began.of, True)
    stats = made.js.connection.stats()
    assert (stats.waiting_for_leader, stats.leader_waits) == (0, 1)
    assert "headrace_client_leader_waits_total 1" in prometheus([(stats, {})])


async def test_a_call_without_an_answer_is_made_again_only_if_it_does_no_harm(make: Make) -> None:
    made = make([SILENCE, SILENCE, INFO])
    assert (await made.js.stream("S")).name == "S"
    assert len(made.asked) == 3
    calls: tuple[Callable[[JetStream], Any], ...] = (
        lambda js: js.delete_stream("S"),
        lambda js: js.delete_consumer("S", "c"),
        lambda js: js.create_consumer("S"),
    )
    for call in calls:
        made = make([SILENCE])
        with pytest.raises(RequestTimeoutError):
            await call(made.js)
        assert len(made.asked) == 1


async def test_without_a_cluster_nobody_waits_for_an_answer(make: Make) -> None:
    made = make([SILENCE], cluster="")
    with pytest.raises(RequestTimeoutError):
        await made.js.stream("S")
    made = make([SILENCE], cluster="")
    with pytest.raises(RequestTimeoutError):
        await made.js.publish("s", msg_id="1")


async def test_waiting_ends_with_the_delivery_timeout(make: Make) -> None:
    made = make([NOT_NOW] * 1000, delivery_timeout=0.05)
    with pytest.raises(JetStreamApiError) as caught:
        await made.js.account_info()
    assert "JetStream had no leader within 0.05 s" in caught.value.__notes__
    made = make([NOBODY, THERE] * 1000, delivery_timeout=0.05)
    with pytest.raises(NoRespondersError, match=r"stream 'S' had no leader within 0\.05 s"):
        await made.js.publish("s")
    assert made.js.connection.stats().waiting_for_leader == 0
    with pytest.raises(ConfigurationError, match="delivery_timeout"):
        made.js.publisher(delivery_timeout=0)


async def test_a_publish_to_nobody_fails_after_one_question(make: Make) -> None:
    made = make([NOBODY, NOWHERE])
    with pytest.raises(NoRespondersError, match="no stream has the subject 's'"):
        await made.js.publish("s")
    assert made.asked == ["s", "$JS.API.STREAM.NAMES"]
    made = make([NOBODY])
    with pytest.raises(NoRespondersError, match="no stream has the subject 's'"):
        await made.js.publish("s", retries=0)


async def test_a_publish_waits_for_the_leader_of_its_stream_or_of_all(make: Make) -> None:
    for script in (
        [NOBODY, THERE, NOBODY, THERE, STORED],
        [NOBODY, SILENCE, NOBODY, NOT_NOW, STORED],
        [b'{"error":{"code":503,"description":"raft: not leader"},"stream":"S","seq":0}', STORED],
    ):
        made = make(script)
        assert (await made.js.publish("s")).seq == 7
        assert not made.script


async def test_a_publish_without_an_answer_is_sent_again_only_with_an_id(make: Make) -> None:
    made = make([SILENCE, STORED])
    assert (await made.js.publish("s", msg_id="1")).seq == 7
    made = make([SILENCE])
    with pytest.raises(RequestTimeoutError):
        await made.js.publish("s")


async def test_one_who_led_before_and_is_behind_does_not_decide(make: Make) -> None:
    def wrong(last: int) -> bytes:
        text = f"wrong last sequence: {last}"
        return encode_error(400, 10071, text)

    made = make([wrong(9), wrong(9), STORED])
    assert (await made.js.publish("s", expected_last_subject_sequence=12)).seq == 7
    for script, cluster in (([wrong(13)], "three"), ([wrong(9)], "")):
        made = make(script, cluster=cluster)
        with pytest.raises(JetStreamApiError, match="wrong last sequence"):
            await made.js.publish("s", expected_last_subject_sequence=12)


async def test_what_one_refused_who_was_behind_may_be_stored_by_the_next(make: Make) -> None:
    behind = encode_error(400, 10071, "wrong last sequence: 9")
    ahead = encode_error(400, 10071, "wrong last sequence: 13")
    made = make([behind, ahead])
    with pytest.raises(RequestTimeoutError, match=r"wrong last sequence: 13.*may be stored or not"):
        await made.js.publish("s", expected_last_sequence=12)
    made = make([behind, ahead])
    with pytest.raises(JetStreamApiError, match="wrong last sequence: 13"):  # not a duplicate
        await made.js.publish("s", msg_id="1", expected_last_sequence=12)
    made = make([behind] * 100)
    with pytest.raises(JetStreamApiError, match="wrong last sequence: 9"):
        await made.js.publish("s", expected_last_sequence=12)
    assert len(made.asked) == 1 + BEHIND_MAX


async def test_a_message_on_its_way_to_the_stream_decides_nothing(make: Make) -> None:
    on_its_way = encode_error(400, 10164, "wrong last sequence")
    made = make([SILENCE, on_its_way, STORED])
    published = made.js.publish("s", msg_id="1", expected_last_subject_sequence=12)
    assert (await published).seq == 7
    made = make([on_its_way, encode_error(400, 10071, "wrong last sequence: 13")])
    with pytest.raises(JetStreamApiError, match="wrong last sequence: 13"):
        await made.js.publish("s", expected_last_subject_sequence=12)
    made = make([on_its_way], cluster="")
    with pytest.raises(JetStreamApiError, match="wrong last sequence"):
        await made.js.publish("s", expected_last_subject_sequence=12)


def encode_error(code: int, err_code: int, description: str) -> bytes:
    error = {"code": code, "err_code": err_code, "description": description}
    return json.dumps({"error": error, "stream": "S", "seq": 0}).encode()


async def test_who_may_not_ask_is_served_as_before(make: Make) -> None:
    refused = ServerError("permissions violation")
    made = make([NOBODY, refused, NOBODY, refused, NOBODY])
    with pytest.raises(NoRespondersError, match="no stream has the subject 's'"):
        await made.js.publish("s", retries=2)
    assert made.asked.count("s") == 3


def test_what_an_election_looks_like() -> None:
    assert is_leaderless(JetStreamApiError(503, 10008, ""))
    assert is_leaderless(JetStreamApiError(503, 0, "raft: not leader"))
    assert not is_leaderless(JetStreamApiError(503, 10077, "maximum messages exceeded"))
    assert not is_leaderless(JetStreamApiError(503, 10039, "JetStream not enabled for account"))
    assert not is_leaderless(RequestTimeoutError())


def test_the_blocking_client_has_the_same_option() -> None:
    with sync.Broker(port=-1) as broker, broker.connect(delivery_timeout=40) as connection:
        assert connection.jetstream()._inner._api.delivery_timeout == 40
        js = connection.jetstream(delivery_timeout=20)
        assert js._inner._api.delivery_timeout == 20
        publisher = js.publisher(delivery_timeout=10)
        assert publisher._inner._recovery._limit == 10  # type: ignore[attr-defined]
        with pytest.raises(NoRespondersError, match="no stream has"):
            js.publish("nobody.has.this", delivery_timeout=5)


async def test_a_wait_that_is_cancelled_is_over(make: Make) -> None:
    made = make([NOBODY, THERE] * 100_000)
    waiting = asyncio.create_task(made.js.publish("s"))
    while not made.session.waits.count:
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert made.session.waits.count == 0
