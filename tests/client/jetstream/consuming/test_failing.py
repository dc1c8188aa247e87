"""What follows when a callback fails: again after a pause, elsewhere as a dead letter, or the end."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pydantic
import pytest

import peers
from headrace.client import (
    Consumer,
    Consumption,
    DeadLetter,
    JetStream,
    JetStreamMessage,
    Retry,
    Stop,
    Stream,
    connect,
)
from headrace.client.events import ConsumptionEnded, Event
from headrace.errors import ConfigurationError, HandlerFailedError
from waiting import until

pytestmark = pytest.mark.peer

Pending = Callable[[Consumer, int], Awaitable[None]]
WAYS: dict[str, dict[str, Any]] = {
    "in turn": {},
    "at once": {"concurrency": 3},
    "in order": {"concurrency": 3, "order_by": lambda message: message.subject},
}


class Failing:
    """A callback that fails for what is published to ``….bad``, ``times`` times, and remembers."""

    def __init__(self, times: int = 10_000, error: type[Exception] = ValueError) -> None:
        self.times = times
        self.error = error
        self.calls: defaultdict[int, list[float]] = defaultdict(list)
        self.order: list[tuple[int, str]] = []

    async def __call__(self, message: JetStreamMessage) -> None:
        sequence = message.metadata.stream_seq
        self.calls[sequence].append(time.monotonic())
        if message.subject.endswith(".bad") and len(self.calls[sequence]) <= self.times:
            self.order.append((sequence, "failed"))
            raise self.error("line one\nline two")
        self.order.append((sequence, "done"))
        message.ack()

    def gaps(self, sequence: int) -> list[float]:
        times = self.calls[sequence]
        return [later - earlier for earlier, later in itertools.pairwise(times)]


class Bill(pydantic.BaseModel):
    amount: int


async def until_stored(stream: Stream, count: int) -> None:
    async def are_there() -> bool:
        return (await stream.info()).state.messages == count

    await until(are_there, "the letters were not stored", within=30)


async def letters_of(js: JetStream, name: str) -> Stream:
    return await js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")


@pytest.mark.parametrize("way", WAYS)
async def test_a_failed_message_is_tried_again_after_its_pauses_and_the_others_go_on(
    js: JetStream, stream: Stream, way: str, ack_pending: Pending
) -> None:
    for key in ("bad", "good", "bad", "good"):
        await js.publish(f"{stream.name}.{key}", b"x")
    consumer = await stream.create_consumer(durable_name="c")
    failing, errors = Failing(times=2), list[Exception]()
    policy = Retry(backoff=(0.05, 0.15))
    async with consumer.consume(
        failing, on_failure=policy, on_error=errors.append, max_messages=10, **WAYS[way]
    ):
        await until(lambda: sum(what == "done" for _, what in failing.order) == 4)
    for sequence in (1, 3):
        first, second = failing.gaps(sequence)
        assert first >= 0.05 and second >= 0.15
    assert failing.order.index((2, "done")) < failing.order.index((1, "done"))
    if way == "in order":
        bad = [each for each in failing.order if each[0] in (1, 3)]
        assert bad == [(1, "failed")] * 2 + [(1, "done")] + [(3, "failed")] * 2 + [(3, "done")]
    assert len(errors) == 4
    await ack_pending(consumer, 0)


@pytest.mark.parametrize("way", WAYS)
async def test_what_fails_for_ever_becomes_a_dead_letter_that_says_why(
    js: JetStream, stream: Stream, way: str, ack_pending: Pending
) -> None:
    dead = await letters_of(js, f"{stream.name}DEAD")
    await js.publish(f"{stream.name}.bad", b"poison", headers={"Customer": "7"}, msg_id="one")
    await js.publish(f"{stream.name}.good", b"x")
    consumer = await stream.create_consumer(durable_name="c")
    failing = Failing()
    policy = DeadLetter(f"{dead.name}.orders", after=3, backoff=(0.01,))
    async with consumer.consume(
        failing, on_failure=policy, on_error=lambda error: None, **WAYS[way]
    ):
        await until(lambda: (1, "failed") in failing.order)
        await ack_pending(consumer, 0)
    letter = await dead.get_message(1)
    headers = {name: letter.headers[name] for name in letter.headers}
    assert (letter.payload, len(failing.calls[1])) == (b"poison", 3)
    time_ns = (await stream.get_message(1)).timestamp_ns
    assert headers.pop("Nats-Msg-Id") == f"{stream.name}.1.{time_ns}.c"
    assert headers == {
        "Customer": "7",
        "Headrace-Stream": stream.name,
        "Headrace-Consumer": "c",
        "Headrace-Subject": f"{stream.name}.bad",
        "Headrace-Sequence": "1",
        "Headrace-Attempts": "3",
        "Headrace-Failure": r"ValueError('line one\nline two')",
    }
    await dead.delete()


async def test_an_error_of_many_lines_is_one_line_of_a_dead_letter(
    js: JetStream, stream: Stream, ack_pending: Pending
) -> None:
    """As pydantic's are: their ``repr`` has line breaks as they are."""
    dead = await letters_of(js, f"{stream.name}DEAD")
    await js.publish(f"{stream.name}.bad", b'{"amount": "many"}')
    consumer = await stream.create_consumer(durable_name="c")

    def typed(message: JetStreamMessage) -> None:
        Bill.model_validate_json(message.payload)

    with pytest.raises(pydantic.ValidationError) as caught:
        Bill.model_validate_json(b'{"amount": "many"}')
    assert len(repr(caught.value).splitlines()) > 2
    policy = DeadLetter(f"{dead.name}.bills", after=1)
    async with consumer.consume(typed, on_failure=policy, on_error=lambda error: None):
        await until_stored(dead, 1)
        await ack_pending(consumer, 0)
    letter = await dead.get_message(1)
    assert letter.payload == b'{"amount": "many"}'
    reason = letter.headers["Headrace-Failure"]
    assert reason == " ".join(repr(caught.value).split())[:500]
    assert reason.startswith("1 validation error for Bill amount Input should be a valid integer")
    assert set(letter.headers) == {
        *("Nats-Msg-Id", "Headrace-Stream", "Headrace-Consumer", "Headrace-Subject"),
        *("Headrace-Sequence", "Headrace-Attempts", "Headrace-Failure"),
    }
    await dead.delete()


async def test_attempts_outlive_the_worker(js: JetStream, stream: Stream) -> None:
    dead = await letters_of(js, f"{stream.name}DEAD")
    await js.publish(f"{stream.name}.bad", b"x")
    consumer = await stream.create_consumer(durable_name="c", ack_wait=0.2)
    for _ in range(2):  # as workers that it killed
        await consumer.next(5)
    failing = Failing()
    policy = DeadLetter(f"{dead.name}.x", after=3)
    async with consumer.consume(failing, on_failure=policy, on_error=lambda error: None):

        async def is_there() -> bool:
            return (await dead.info()).state.messages == 1

        await until(is_there)
    assert len(failing.calls[1]) == 1
    await dead.delete()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("max_deliver", [-1, 2])
async def test_nothing_is_lost_while_dead_letters_cannot_be_stored(
    js: JetStream, stream: Stream, way: str, max_deliver: int, ack_pending: Pending
) -> None:
    """Nobody has the subject, then the stream of it is full, then there is room."""
    await js.publish(f"{stream.name}.bad", b"x")
    consumer = await stream.create_consumer(durable_name="c", ack_wait=5, max_deliver=max_deliver)
    failing, errors = Failing(), list[Exception]()
    name = f"{stream.name}DEAD"
    policy = DeadLetter(f"{name}.x", after=2, backoff=(0.01,))
    async with consumer.consume(failing, on_failure=policy, on_error=errors.append, **WAYS[way]):
        await until(lambda: any("listen" in str(e) or "responder" in str(e) for e in errors))
        dead = await js.create_stream(
            name=name, subjects=[f"{name}.>"], storage="memory", max_msgs=1, discard="new"
        )
        if max_deliver == 2:
            assert len(failing.calls[1]) == 2, "it would not be delivered again"
        await js.publish(f"{name}.other", b"in the way")
        await until(lambda: any("maximum messages" in str(error) for error in errors))
        await dead.purge()
        await ack_pending(consumer, 0)
    info = await dead.info()
    assert info.state.messages == 1
    assert (await dead.get_last_message(f"{name}.x")).payload == b"x"
    await dead.delete()


@pytest.mark.parametrize("way", WAYS)
async def test_a_dead_letter_whose_message_comes_again_is_stored_once(
    js: JetStream, stream: Stream, way: str, ack_pending: Pending, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody takes it at first; then it is stored, and the acknowledgement of its message is lost."""
    await js.publish(f"{stream.name}.bad", b"x")
    consumer = await stream.create_consumer(durable_name="c", ack_wait=1)
    name = f"{stream.name}DEAD"
    policy = DeadLetter(f"{name}.x", after=1)
    errors = list[Exception]()

    def consumption(failing: Failing) -> Consumption:
        return consumer.consume(failing, on_failure=policy, on_error=errors.append, **WAYS[way])

    with monkeypatch.context() as lost:
        lost.setattr(JetStreamMessage, "ack", lambda message: None)
        async with consumption(Failing()):
            await until(lambda: any(not isinstance(error, ValueError) for error in errors))
            dead = await js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")

            async def is_stored() -> bool:
                return (await dead.info()).state.messages == 1

            await until(is_stored)
    async with consumption(Failing(error=KeyError)):
        await until(lambda: any(isinstance(error, KeyError) for error in errors))
        await ack_pending(consumer, 0)
    assert (await dead.info()).state.messages == 1
    await dead.delete()


async def is_empty(consumer: Consumer) -> bool:
    """Whether all of its messages were acknowledged."""
    info = await consumer.info()
    return not info.num_pending + info.num_ack_pending


async def test_a_stream_that_is_made_again_has_dead_letters_of_its_own(js: JetStream) -> None:
    """Its first message has the sequence of the first one before: with one id for both, it would be lost."""
    name = "AGAIN"
    dead = await letters_of(js, "AGAINDEAD")
    policy = DeadLetter(f"{dead.name}.x", after=1)
    for payload in (b"before", b"after"):
        stream = await js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
        await js.publish(f"{name}.bad", payload)
        consumer = await stream.create_consumer(durable_name="c")
        async with consumer.consume(Failing(), on_failure=policy, on_error=lambda error: None):
            await until(partial(is_empty, consumer))
        await stream.delete()
    letters = [(await dead.get_message(number)).payload for number in (1, 2)]
    assert letters == [b"before", b"after"]
    await dead.delete()


async def test_who_answers_a_dead_letter_without_a_stream_has_not_stored_it(
    js: JetStream, stream: Stream
) -> None:
    await js.publish(f"{stream.name}.bad", b"x")
    consumer = await stream.create_consumer(durable_name="c")
    errors: list[Exception] = []
    answering = await js.connection.subscribe(
        f"nobody.{stream.name}", callback=lambda m: m.respond(b"{}")
    )
    policy = DeadLetter(f"nobody.{stream.name}", after=1)
    async with consumer.consume(Failing(), on_failure=policy, on_error=errors.append):
        await until(lambda: any("is no stream" in str(error) for error in errors))
    assert (await consumer.info()).num_ack_pending + (await consumer.info()).num_pending == 1
    await answering.unsubscribe()


@pytest.mark.parametrize("policy", [DeadLetter, Retry])
async def test_errors_that_are_not_tried_again_end_the_attempts_at_once(
    js: JetStream, stream: Stream, policy: type[Any]
) -> None:
    await js.publish(f"{stream.name}.bad", b"x")
    consumer = await stream.create_consumer(durable_name="c")
    failing = Failing(error=KeyError)
    never: dict[str, Any] = {"never": (KeyError, TypeError), "backoff": (0.01,)}
    chosen = (
        DeadLetter(f"{stream.name}.letters", **never) if policy is DeadLetter else Retry(**never)
    )
    async with consumer.consume(
        failing, on_failure=chosen, on_error=lambda error: None
    ) as consumption:
        if policy is Retry:
            with pytest.raises(HandlerFailedError, match="failed 1 time for subject"):
                await consumption.wait()
        else:
            await until(lambda: (2, "done") in failing.order)
    assert len(failing.calls[1]) == 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("policy", [Stop(), Retry((0.01,), attempts=2)])
async def test_a_policy_that_stops_ends_the_consume_and_says_so(
    reference_server: peers.ServerProcess,
    js: JetStream,
    stream: Stream,
    way: str,
    policy: Stop | Retry,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await js.publish(f"{stream.name}.bad", b"x")
    for _ in range(5):
        await js.publish(f"{stream.name}.good", b"x")
    consumer = await stream.create_consumer(durable_name="c")
    failing, events = Failing(), list[Event]()
    times = 1 if isinstance(policy, Stop) else 2
    async with connect(reference_server.url, on_event=events.append) as connection:
        theirs = await connection.jetstream().consumer(stream.name, "c")
        consumption = theirs.consume(failing, on_failure=policy, **WAYS[way])
        with pytest.raises(HandlerFailedError, match=f"failed {times} time.*sequence 1") as caught:
            await consumption.wait()
        assert isinstance(caught.value.__cause__, ValueError)
        assert consumption.state == "failed" and consumption.error is caught.value
    (ended,) = (event for event in events if isinstance(event, ConsumptionEnded))
    assert ended.error is caught.value
    assert sum("is called no more" in line for line in caplog.messages) == 1
    done = {sequence for sequence, what in failing.order if what == "done"}
    rest = await consumer.fetch(10, max_wait=0.2)
    assert done.isdisjoint({m.metadata.stream_seq for m in rest})
    assert (await consumer.info()).num_ack_pending >= 1


async def test_a_bare_nak_waits_as_the_policy_says_and_is_no_failure(
    js: JetStream, stream: Stream, ack_pending: Pending
) -> None:
    await js.publish(f"{stream.name}.a", b"x")
    consumer = await stream.create_consumer(durable_name="c")
    times: list[float] = []

    async def handle(message: JetStreamMessage) -> None:
        times.append(time.monotonic())
        if len(times) <= 3:
            message.nak() if len(times) < 3 else message.nak(0)
        else:
            message.ack()

    policy = DeadLetter(f"{stream.name}.letters", after=2, backoff=(0.1, 0.2, 3600))
    async with consumer.consume(handle, on_failure=policy):
        await until(lambda: len(times) == 4, "a delay of its own was not taken")
        await ack_pending(consumer, 0)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps[0] >= 0.1 and gaps[1] >= 0.2
    assert (await stream.info()).state.messages == 1


async def test_what_waits_for_its_next_call_goes_back_when_the_consume_ends(
    js: JetStream, stream: Stream
) -> None:
    await js.publish(f"{stream.name}.bad", b"x")
    consumer = await stream.create_consumer(durable_name="c")
    failing = Failing()
    policy = Retry(backoff=(0.3,))
    async with consumer.consume(
        failing, on_failure=policy, on_error=lambda error: None, **WAYS["in order"]
    ):
        await until(lambda: failing.order)
    message = await consumer.next(5)
    assert message.metadata.delivered == 2
    assert time.monotonic() - failing.calls[1][0] >= 0.25, "after what was left of its pause"
    message.ack()


async def test_a_message_that_waits_for_its_next_call_is_renewed(
    js: JetStream, stream: Stream, ack_pending: Pending
) -> None:
    await js.publish(f"{stream.name}.bad", b"x")
    consumer = await stream.create_consumer(durable_name="c", ack_wait=1.0)
    failing = Failing(times=1)
    async with consumer.consume(
        failing,
        on_failure=Retry(backoff=(2.2,)),
        on_error=lambda error: None,
        **WAYS["in order"],
    ):
        await until(lambda: (1, "done") in failing.order)
        await ack_pending(consumer, 0)
    assert len(failing.calls[1]) == 2
    assert (await consumer.info()).delivered.consumer_seq == 1


async def test_a_policy_that_cannot_be_kept_is_refused(js: JetStream, stream: Stream) -> None:
    limited = await stream.create_consumer(durable_name="c", max_deliver=3)
    for policy in (DeadLetter("d", after=5), Retry(), Retry(attempts=4)):
        with pytest.raises(ConfigurationError, match="max_deliver=3"):
            limited.consume(Failing(), on_failure=policy)
    with pytest.raises(ConfigurationError, match="whoever iterates"):
        limited.consume(on_failure=Retry(attempts=2))
    with pytest.raises(ConfigurationError, match="accepted: Stop"):
        limited.consume(Failing(), on_failure="retry")  # type: ignore[arg-type]
    without = await stream.create_consumer(durable_name="n", ack_policy="none")
    with pytest.raises(ConfigurationError, match="needs ack_policy"):
        without.consume(Failing(), on_failure=Stop())
    assert not js.connection._session.observers
    await asyncio.sleep(0)
