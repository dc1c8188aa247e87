"""What is wrong with a pipeline before it runs: its options, and what servers say of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import peers
from headrace import sync
from headrace.pipeline.checking.sources_and_sinks import check, check_options
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.model import Unasked

from ..conftest import ORDERS

Write = Callable[..., Path]

TWO = """
[pipeline]
name = "orders"
checkpoint = "checkpoint"

[sources.orders]
options = {{ stream = "{stream}", servers = "{servers}", durable = "shown" }}

[sources.others.options]
stream = "{other}"
servers = "{servers}"

[sinks.out]
from = "orders"
format = "noop"
"""


def test_options_are_checked_in_their_lines(write: Write) -> None:
    text = TWO.format(stream="A", servers="nats://127.0.0.1:4222", other="B")
    text = text.replace('stream = "B"', 'stream = "B"\nmaxOfsetsPerTrigger = 5')
    declared = read(write(text))
    (problem,) = check_options(declared)
    assert problem.place.line == 11
    assert problem.text.startswith("unknown option 'maxOfsetsPerTrigger'; did you mean")
    assert check(declared) == ([problem], []), "no server is asked"


def test_a_schema_among_the_options_is_told_where_it_belongs(write: Write) -> None:
    text = TWO.format(stream="A", servers="nats://127.0.0.1:4222", other="B")
    text = text.replace('stream = "B"', 'stream = "B"\nvalueFormat = "json"\nschema = "n INT"')
    (problem,) = check_options(read(write(text)))
    assert problem.place.line == 12
    assert "the columns of the value are the option valueSchema (with valueFormat)" in problem.text
    assert "the key schema of [sources.others]" in problem.text


def test_a_missing_stream_is_told_with_those_there_are(write: Write, url: str, stream: str) -> None:
    declared = read(write(TWO.format(stream=stream, servers=url, other=f"{stream}S")))
    problems, found = check(declared)
    assert found == [f"stream {stream} has 10 messages"]
    ((place, text),) = problems
    assert place.line == 9
    assert f"the server has no stream '{stream}S'; there are: {stream}" in text


def test_a_server_that_is_not_there_is_told(write: Write, free_port: int) -> None:
    servers = f"nats://127.0.0.1:{free_port}"
    problems, _ = check(read(write(TWO.format(stream="A", servers=servers, other="B"))))
    assert [problem.place.line for problem in problems] == [6]
    assert "Connection refused" in problems[0].text
    assert isinstance(problems[0], Unasked)


def with_sink(url: str, stream: str, *lines: str) -> str:
    sink = [f'servers = "{url}"', f'stream = "{stream}"', *lines]
    more = "\n".join(
        ["[sinks.copies]", 'from = "orders"', 'format = "jetstream"', "[sinks.copies.options]"]
    )
    text = TWO.format(stream=stream, servers=url, other=stream)
    return "\n".join([text, more, *sink, ""])


def test_options_of_a_sink_are_checked_in_their_lines(write: Write, url: str, stream: str) -> None:
    def told(*lines: str) -> str:
        (problem,) = check_options(read(write(with_sink(url, stream, *lines))))
        return f"{problem.place.line}: {problem.text}"

    assert told('delivry = "dedupe"').startswith(
        "23: unknown option 'delivry'; did you mean 'delivery'?"
    )
    assert told('delivery = "exactlyOnce"').startswith(
        "17: delivery=exactlyOnce needs the option 'sinkId'"
    )
    assert told('subject = "a.*"').startswith("23: option 'subject' is 'a.*'; accepted: a subject")


def test_a_stream_that_cannot_be_written_to_as_declared_is_told(
    write: Write, url: str, stream: str
) -> None:
    fine, found = check(read(write(with_sink(url, stream, f'subject = "{stream}.{{id}}"'))))
    assert fine == []
    assert found[-1] == f"stream {stream} takes the rows of copies"
    (elsewhere,), _ = check(read(write(with_sink(url, stream, 'subject = "elsewhere"'))))
    assert "has no subject 'elsewhere'" in elsewhere.text
    exactly = with_sink(url, stream, 'delivery = "exactlyOnce"', 'sinkId = "copies"')
    (atomic,), _ = check(read(write(exactly)))
    assert atomic.place.line == 17
    assert "allow_atomic" in atomic.text


def test_old_values_that_may_be_the_last_are_warned_of(write: Write, url: str, stream: str) -> None:
    name = f"FEW{stream}"
    with sync.connect(url) as connection:
        connection.jetstream().create_stream(
            name=name, subjects=[f"{name}.>"], max_msgs_per_subject=1
        )

    def warnings(*lines: str, reading: str = 'durable = "shown"') -> list[str]:
        text = with_sink(url, name, f'subject = "{name}.{{id}}"', *lines)
        problems, found = check(read(write(text.replace('durable = "shown"', reading))))
        assert problems == []
        return [each for each in found if each.startswith("warning: ")]

    (said,) = warnings(reading='maxTasks = "2"')
    assert f"stream {name} keeps 1 message of a subject, and several tasks write" in said
    assert ":17: " in said
    assert warnings('key = "id"') == []
    assert warnings(reading='maxTasks = "1"') == [], "one task writes in the stream's order"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('checkpoint = "', 'checkpoint = "s3://bucket/'), "a checkpoint in a directory of this"),
        (
            ("options = { stream", 'schema = "n int"\noptions = { valueFormat = "json", stream'),
            "has a schema without the column sequence",
        ),
        (
            ("options = { s", 'options = { consumer = "c", minPending = 9, s'),
            "cannot be read again by sequence",
        ),
        (("[sources.orders]", '[sources.orders]\nformat = "rate"'), "is no jetstream source"),
    ],
)
def test_quarantine_by_a_view_needs_messages_that_can_be_left_out(
    write: Write, change: tuple[str, str], said: str
) -> None:
    view = '[views.v]\nsql = "SELECT * FROM orders"\notherwise = "quarantine"\nletters = "dead"\n'
    text = ORDERS.replace('from = "orders"', 'from = "v"') + view
    assert check_options(read(write(text))) == []
    assert said in " ".join(each.text for each in check_options(read(write(text.replace(*change)))))


SERVERS = [pytest.param("nats_server", marks=pytest.mark.peer), "headrace_server"]


@pytest.mark.parametrize("kind", SERVERS)
def test_missing_permissions_are_told_by_subject(
    write: Write, kind: str, request: pytest.FixtureRequest
) -> None:
    users = """
        {user: boss, password: b}
        {user: ann, password: a, permissions: {
            publish: {allow: ["$SYS.REQ.USER.INFO", "$JS.API.STREAM.INFO.*"]}, subscribe: "_INBOX.>"}}
        {user: mute, password: m, permissions: {publish: {deny: ">"}, subscribe: "_INBOX.>"}}
    """
    config = f"authorization {{ users: [{users}] }}"
    make: Callable[..., peers.ServerProcess] = request.getfixturevalue(kind)
    file = write(config, "users.conf")  # the same syntax for both
    url = (make(config=config) if kind == "nats_server" else make(flags=["-c", str(file)])).url
    with sync.connect(url, user="boss", password="b") as connection:
        connection.jetstream().create_stream(name="ORDERS", subjects=["orders.>"])

    def told(user: str) -> list[str]:
        text = TWO.format(stream="ORDERS", servers=url, other="ORDERS")
        who = f'user = "{user}"\npassword = "{user[0]}"\n'
        text = text.replace("[sinks.out]", f"{who}\n[sinks.out]")
        text = text.replace(
            'durable = "shown"', f'durable = "shown", user = "{user}", password = "{user[0]}"'
        )
        problems, _ = check(read(write(text)))
        return [f"{problem.place.line}: {problem.text}" for problem in problems]

    assert told("boss") == []
    without_durable, with_durable = reversed(told("ann"))
    assert with_durable.startswith(
        "6: user 'ann' may not publish to $JS.API.CONSUMER.CREATE.ORDERS, "
    )
    assert "$JS.API.CONSUMER.INFO.ORDERS.shown" in with_durable
    assert "INFO" not in without_durable
    assert any("Permissions Violation" in each for each in told("mute"))
