"""The blocking client where threads, forks, interrupts and event loops meet."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

import peers
from headrace import sync
from headrace.errors import ConfigurationError, ConnectionClosedError, HeadraceError

pytestmark = pytest.mark.peer


@pytest.fixture
def connection(reference_server: peers.ServerProcess) -> Iterator[sync.Connection]:
    with sync.connect(reference_server.url, drain_timeout=5) as connection:
        yield connection


@pytest.fixture
def stream(connection: sync.Connection) -> Iterator[sync.Stream]:
    stream = connection.jetstream().create_stream(
        name="THREADS", subjects=["THREADS.>"], storage="memory"
    )
    yield stream
    if not connection.is_closed:
        stream.delete()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_in_a_forked_child_nothing_is_lost_in_silence_and_closing_is_harmless(
    connection: sync.Connection, stream: sync.Stream
) -> None:
    js = connection.jetstream()
    js.publish("THREADS.1", b"x")
    message = stream.create_consumer(durable_name="c").next(5)
    subscription = connection.subscribe("threads.x", callback=lambda message: None)
    child = os.fork()
    if child == 0:  # no assertion may leave this branch
        code = 1
        signal.setitimer(signal.ITIMER_REAL, 5)  # ends it if it hangs
        try:
            refused = 0
            for call in (message.ack, connection.flush, subscription.unsubscribe):
                try:
                    call()
                except ConnectionClosedError as error:
                    refused += "fork" in str(error)
            connection.close()
            with connection:
                pass
            code = 0 if refused == 3 else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    message.ack()
    connection.flush()  # the parent's goes on


def test_calls_that_race_with_closing_end_in_one_kind_of_error(
    reference_server: peers.ServerProcess,
) -> None:
    for _ in range(10):
        assert errors_of_a_race(sync.connect(reference_server.url)) == {ConnectionClosedError}


def errors_of_a_race(connection: sync.Connection) -> set[type[BaseException]]:
    errors: list[BaseException] = []
    begun = threading.Barrier(5)

    def work() -> None:
        begun.wait()
        try:
            while True:
                connection.flush()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    begun.wait()
    time.sleep(0.005)
    connection.close()
    for thread in threads:
        thread.join(5)
    assert not any(thread.is_alive() for thread in threads)
    return {type(error) for error in errors}


def test_draining_waits_for_callbacks_on_their_threads(connection: sync.Connection) -> None:
    seen: list[bytes] = []

    def slow(message: sync.Message) -> None:
        time.sleep(0.005)
        seen.append(message.payload)
        message.respond(b"done")

    answers = connection.subscribe("threads.answers")
    connection.subscribe("threads.slow", callback=slow)
    for number in range(50):
        connection.publish("threads.slow", b"%d" % number, reply="threads.answers")
    taken = threading.Thread(target=lambda: list(answers))
    taken.start()
    connection.drain()
    taken.join(5)
    assert len(seen) == 50


@pytest.mark.parametrize("what", ["subscription", "consumption", "connection", "stop", "wait"])
def test_a_callback_may_end_what_calls_it(
    connection: sync.Connection, stream: sync.Stream, what: str
) -> None:
    ready, ended = threading.Event(), threading.Event()
    refused: list[Exception] = []
    holder: dict[str, sync.Subscription | sync.Consumption] = {}
    js = connection.jetstream()

    def handle(message: sync.Message | sync.JetStreamMessage) -> None:
        if ended.is_set():
            return
        assert ready.wait(3)
        mine = holder["mine"]
        if what == "connection":
            connection.drain()
        elif isinstance(mine, sync.Consumption) and what in ("stop", "wait"):
            try:
                mine.stop() if what == "stop" else mine.wait()
            except ConfigurationError as error:
                refused.append(error)
        else:
            mine.drain()
        ended.set()

    if what in ("subscription", "connection"):
        holder["mine"] = connection.subscribe("threads.quit", callback=handle)
        ready.set()
        connection.publish("threads.quit")
    else:
        for _ in range(3):
            js.publish("THREADS.1")
        holder["mine"] = stream.create_consumer(durable_name="c").consume(handle)
        ready.set()
    assert ended.wait(3)
    assert len(refused) == (what == "wait")
    if what in ("consumption", "stop"):
        holder["mine"].drain()


@pytest.mark.parametrize("wakes", [True, False], ids=["wakes", "wakes-nobody"])
def test_an_interrupt_ends_a_blocking_call_and_leaves_the_connection_usable(
    connection: sync.Connection, stream: sync.Stream, wakes: bool
) -> None:
    signal.siginterrupt(signal.SIGINT, wakes)
    consumer = stream.create_consumer(durable_name="c", ack_wait=60)
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        consumer.fetch(10, max_wait=300)  # longer than a test may take
    timer.join()
    connection.jetstream().publish("THREADS.1", b"x")
    assert consumer.next(5).payload == b"x"  # the interrupted pull did not swallow it


async def test_it_works_where_an_event_loop_runs_as_in_a_notebook(
    connection: sync.Connection,
) -> None:
    assert asyncio.get_running_loop().is_running()
    connection.publish("threads.notebook")
    connection.flush()


def test_a_callback_that_is_a_coroutine_function_is_refused(
    connection: sync.Connection, stream: sync.Stream
) -> None:
    async def handle(message: object) -> None: ...

    with pytest.raises(HeadraceError, match="plain function"):
        connection.subscribe("threads.x", callback=handle)
    with pytest.raises(HeadraceError, match="plain function"):
        stream.create_consumer(durable_name="c").consume(handle)
    with pytest.raises(HeadraceError, match="plain function"):
        stream.consumer("c").on_pinned(handle)
    assert connection.stats().subscriptions == 0


def test_events_end_with_the_connection(reference_server: peers.ServerProcess) -> None:
    connection = sync.connect(reference_server.url)
    events = connection.events()
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.extend(type(e).__name__ for e in events))
    thread.start()
    connection.close()
    thread.join(5)
    assert not thread.is_alive()
    assert seen in ([], ["Closed"])
