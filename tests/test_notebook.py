"""What a notebook shows: short tracebacks, documents and messages as tables."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace import Broker, HandlerFailedError, HeadraceError, sync
from headrace.api.streams import StreamConfig, StreamInfo
from headrace.jobs.client import JobsClient
from headrace.notebook import table, traceback_lines

ROOMS = [
    "headrace",
    "headrace.console",
    "headrace.groups",
    "headrace.jobs.client",
    "headrace.locks",
    "headrace.pipeline",
    "headrace.sync",
    "headrace.sync.groups",
    "headrace.testing",
    "headrace.worker",
]


def shown(error: BaseException) -> str:
    assert isinstance(error, HeadraceError)
    return "\n".join(error._render_traceback_())


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda js: js.stream("NOPE"), "StreamNotFoundError: stream not found"),
        (lambda js: js.key_value("nope"), "BucketNotFoundError: there is no bucket 'nope'"),
        (lambda js: js.publish("no.stream"), "NoRespondersError: no stream has the subject"),
    ],
)
async def test_an_error_is_shown_with_the_frames_of_the_users_program_alone(
    call: Callable[[Any], Awaitable[object]], told: str
) -> None:
    async with Broker() as broker, broker.connect() as nc:
        with pytest.raises(HeadraceError) as failed:
            await call(nc.jetstream())
    text = shown(failed.value)
    assert told in text and "test_notebook.py" in text
    assert "src/headrace" not in text and "another exception" not in text
    assert "sys.last_value" in text.splitlines()[-1]
    assert len(text.splitlines()) <= 8, text


def test_an_error_of_the_blocking_client_is_as_short() -> None:
    with sync.Broker() as broker, broker.connect() as nc, pytest.raises(HeadraceError) as failed:
        nc.jetstream().stream("NOPE")
    text = shown(failed.value)
    assert "concurrent" not in text and "src/headrace" not in text
    assert len(text.splitlines()) <= 7, text


def test_the_cause_in_the_users_program_is_shown_before_it() -> None:
    def handle() -> None:
        raise ZeroDivisionError("by nothing")

    with pytest.raises(HandlerFailedError) as failed:
        try:
            handle()
        except ZeroDivisionError as error:
            raise HandlerFailedError("the handler failed: by nothing") from error
    lines = traceback_lines(failed.value)
    text = "\n".join(lines)
    assert text.index("in handle") < text.index("direct cause") < text.index("HandlerFailedError")
    assert "sys.last_value" not in text  # nothing was left out


def test_notes_and_errors_without_a_traceback_are_shown() -> None:
    error = HeadraceError("alone")
    error.add_note("and a note")
    assert traceback_lines(error) == ["headrace.errors.HeadraceError: alone\nand a note"]


def test_a_chain_that_never_ends_is_cut() -> None:
    first, second = HeadraceError("first"), HeadraceError("second")
    first.__cause__, second.__cause__ = second, first
    assert len(traceback_lines(first)) <= 20


def test_a_document_shows_what_differs_from_the_defaults() -> None:
    config = StreamConfig(name="S", subjects=("s.>",), max_age=3.0)
    assert repr(config) == "StreamConfig(name='S', subjects=('s.>',), max_age=3.0)"
    found = config._repr_html_()
    assert "<td>max_age</td><td>3.0</td>" in found and "max_bytes" not in found
    assert len(repr(StreamInfo(config=config))) < 100


def test_what_strangers_wrote_cannot_command_the_notebook() -> None:
    found = StreamConfig(description="<script>alert(1)</script>")._repr_html_()
    assert "<script>" not in found
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in found and "metadata" not in found
    assert "<b>" not in table(("<b>",), [("<b>",)], "<b>")


async def test_a_batch_is_a_table_of_its_first_messages() -> None:
    async with Broker() as broker, broker.connect() as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="S", subjects=["s.>"])
        for number in range(25):
            await js.publish(f"s.{number}", b"<i>%d" % number)
        consumer = await stream.create_consumer(durable_name="c")
        found = (await consumer.fetch(25))._repr_html_()
    assert "25 messages" in found and found.count("<tr>") == 1 + 20
    assert "<td>1</td><td>s.0</td><td>b&#x27;&lt;i&gt;0&#x27;</td>" in found


@pytest.mark.parametrize("room", ROOMS)
def test_what_a_user_has_in_hand_shows_what_it_is(room: str) -> None:
    module = importlib.import_module(room)
    found = [(name, getattr(module, name)) for name in module.__all__]
    kinds = {name: each for name, each in found if inspect.isclass(each)}
    assert kinds
    assert [
        name
        for name, each in kinds.items()
        if each.__repr__ is object.__repr__ and not getattr(each, "_is_protocol", False)
    ] == []


async def test_what_an_answer_returns_says_what_it_is() -> None:
    async with Broker() as broker, broker.connect() as nc:
        stream = await nc.jetstream().create_stream(name="S", subjects=["s"])
        await nc.jetstream().publish("s", b"1")
        consumer = await stream.create_consumer(durable_name="c")
        message = await consumer.next(1.0)
        assert repr(message.ack()) == "<the answer is queued>"
        assert repr(consumer) == str(consumer) == "<Consumer 'c' of 'S'>"


def test_a_client_of_jobs_shows_where_it_is_without_the_password() -> None:
    with JobsClient("http://eve:secret@127.0.0.1:1") as client:
        assert repr(client) == "<JobsClient URL('http://eve:[secure]@127.0.0.1:1')>"
        queue = client.queue("orders", "billing", channel_token="a", consumer_token="b")
        assert repr(queue) == "<Queue 'orders/billing'>"
