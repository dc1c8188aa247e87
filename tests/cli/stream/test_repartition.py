"""``headrace stream repartition``, at either server: nothing acknowledged is missing, whatever happens."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import leftovers
import peers
from headrace import StreamConfig, StreamSource, SubjectTransformConfig, sync
from headrace.cli.stream import repartition
from headrace.cli.stream.copy import RepartitionError, numbering_of
from headrace.errors import HeadraceError
from headrace.sync import groups
from headrace.transforms import partition
from waiting import until_here

Run = Callable[..., Any]
NAMES = {"SHIPPING", "SHIPPING8"}
COMMAND = ("stream", "repartition", "SHIPPING", "SHIPPING8", "8", "--force")


@pytest.fixture(autouse=True)
def new(js: sync.JetStream, either_server: peers.ServerProcess) -> None:
    leftovers.clear(either_server, NAMES)


def numbered(dest: str = "{{partition(4,1)}}.ship.{{wildcard(1)}}.{{wildcard(2)}}") -> Any:
    return SubjectTransformConfig(src="ship.*.*", dest=dest)


def fill(js: sync.JetStream, messages: int = 30, **config: Any) -> None:
    given = {"subject_transform": numbered(), "metadata": {"team": "web"}, "allow_direct": True}
    js.create_stream(name="SHIPPING", subjects=["ship.*.*"], **(given | config))
    for number in range(messages):
        js.publish(f"ship.k{number % 7}.x", b"%d" % number)


def contents(js: sync.JetStream, stream: str) -> list[tuple[int, int, str, bytes]]:
    found = js.stream(stream)
    return [
        (each.sequence, each.timestamp_ns, each.subject.partition(".")[2], each.payload)
        for each in found.scan()
    ]


def numbers_are_right(js: sync.JetStream, stream: str, count: int) -> bool:
    subjects = js.stream(stream).info(subjects=">").state.subjects
    return all(
        int(each.split(".")[0]) == partition(each.split(".")[2].encode(), count)
        for each in subjects
    )


def is_as_before(js: sync.JetStream) -> bool:
    config = js.stream("SHIPPING").info().config
    told = {key: value for key, value in config.metadata.items() if not key.startswith("_nats")}
    js.publish("ship.still.x", b"6")
    return (config.subjects, told) == (("ship.*.*",), {"team": "web"})


def test_the_new_stream_has_everything_with_other_numbers_and_publishers_go_on(
    at_server: Run, js: sync.JetStream
) -> None:
    fill(js, max_msgs=1000)
    groups.static.create(js, "SHIPPING", "labels", 4, members=["x"])
    js.create_consumer("SHIPPING", durable_name="audit")
    js.stream("SHIPPING").delete_message(5)
    before = contents(js, "SHIPPING")
    done = at_server(*COMMAND)
    assert (done.status, done.out.splitlines()) == (
        0,
        [
            "stream SHIPPING8 has the subjects of SHIPPING now, with 8 partitions",
            "SHIPPING ends at 30; what reads SHIPPING8 begins at 31, when SHIPPING is handled",
            "  consumer audit: 29 left",
            "  group labels: make it anew on SHIPPING8",
            "headrace stream rm SHIPPING    when nobody needs it any more",
        ],
    ), done
    assert contents(js, "SHIPPING8") == before == contents(js, "SHIPPING")
    assert (js.publish("ship.k1.y", b"next").seq, js.publish("ship.k2.y", b"next").stream) == (
        31,
        "SHIPPING8",
    )
    assert numbers_are_right(js, "SHIPPING", 4)
    assert numbers_are_right(js, "SHIPPING8", 8)
    config = js.stream("SHIPPING8").info().config
    assert (config.max_msgs, config.mirror, config.metadata["team"]) == (1000, None, "web")
    again = at_server("stream", "repartition", "SHIPPING", "SHIPPING8", "8", "--json")
    assert (again.told["boundary"], again.told["groups"]) == (30, ["labels"])


def test_nothing_that_was_acknowledged_meanwhile_is_missing(
    at_server: Run, js: sync.JetStream
) -> None:
    fill(js, messages=300)
    over, stored = threading.Event(), list[str]()

    def publish() -> None:
        number = 0
        while not over.is_set():
            text = f"later {number}"
            try:
                js.publish(f"ship.k{number % 7}.x", text.encode(), timeout=2)
            except HeadraceError:
                continue  # no stream takes it for a moment
            stored.append(text)
            number += 1

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        until_here(lambda: len(stored) > 20)
        done = at_server(*COMMAND)
        after = len(stored)
        until_here(lambda: len(stored) > after + 20)
    finally:
        over.set()
        publisher.join()
    assert done.status == 0, done
    found = [payload for *_, payload in contents(js, "SHIPPING8")]
    assert found[300:] == [text.encode() for text in stored]
    assert numbers_are_right(js, "SHIPPING8", 8)


def test_a_dry_run_and_a_no_change_nothing(at_server: Run, js: sync.JetStream) -> None:
    fill(js)
    [line] = at_server(*COMMAND[:-1], "--dry-run").lines
    assert line.startswith(
        "would make stream SHIPPING8 of SHIPPING with 8 partitions instead of 4: 30 messages ("
    )
    assert at_server(*COMMAND[:-1], answer="n\n").status == 1
    assert list(js.stream_names()) == ["SHIPPING"]
    assert is_as_before(js)


def test_what_a_deleted_stream_has_left_is_not_taken_for_copies(
    at_server: Run, js: sync.JetStream, either_server: peers.ServerProcess
) -> None:
    """Only nats-server leaves anything; after ours the command works at once."""
    fill(js)
    stream = js.create_stream(name="SHIPPING8", subjects=["old"])
    for _ in range(5):
        js.publish("old", b"old")
    if either_server.name == "nats-server":
        obstacle = leftovers.obstruct(Path(either_server.store_dir), "SHIPPING8")
        stream.delete()
        shutil.rmtree(obstacle)
        done = at_server(*COMMAND)
        assert done.status == 1, done
        assert "has left messages of a deleted stream in SHIPPING8" in done.err, done
        assert list(js.stream_names()) == ["SHIPPING"]
        assert is_as_before(js)
    else:
        stream.delete()
    before = contents(js, "SHIPPING")
    assert at_server(*COMMAND).status == 0
    assert contents(js, "SHIPPING8") == before


STEPS = ("catch_up", "stop", "check_numbered", "switch")


@pytest.mark.parametrize("step", STEPS)
def test_a_failure_takes_everything_back(at_server: Run, js: sync.JetStream, step: str) -> None:
    fill(js)
    real = getattr(repartition, step)
    calls: list[str] = []

    async def fails(*given: Any) -> Any:
        calls.append(step)
        if step == "check_numbered" and len(calls) == 1:
            return
        if step != "switch":
            await real(*given)
        raise RepartitionError("no more room")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repartition, step, fails)
        done = at_server(*COMMAND)
    assert (done.status, "no more room" in done.err) == (1, True), done
    assert list(js.stream_names()) == ["SHIPPING"]
    assert is_as_before(js)


@pytest.mark.parametrize("step", [*STEPS, "_tell"])
def test_after_a_crash_the_same_command_goes_on(
    at_server: Run, js: sync.JetStream, step: str
) -> None:
    class Crash(BaseException):
        """Nothing runs after it."""

    calls: list[str] = []
    real = getattr(repartition, step)

    async def crashes(*given: Any) -> Any:
        calls.append(step)
        if step == "check_numbered" and len(calls) == 1:
            return
        await real(*given)
        raise Crash

    async def nothing(*given: Any) -> bool:
        return True

    fill(js)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repartition, step, crashes)
        patch.setattr(repartition, "take_back", nothing)
        with pytest.raises(Crash):
            at_server(*COMMAND)
    done = at_server(*COMMAND)
    assert done.status == 0, done
    assert js.publish("ship.k1.y", b"next").seq == 31
    assert len(contents(js, "SHIPPING8")) == 31


def test_what_cannot_be_renumbered_is_told(at_server: Run, js: sync.JetStream) -> None:
    def refused(*given: str) -> str:
        done = at_server("stream", "repartition", *given, "--force")
        assert done.status == 1, done
        return str(done.err)

    fill(js)
    assert "SHIPPING has 4 partitions already" in refused("SHIPPING", "OTHER", "4")
    js.create_stream(name="PLAIN", subjects=["plain"])
    assert "stream PLAIN puts no partition before" in refused("PLAIN", "OTHER", "4")
    assert "there is a stream PLAIN already" in refused("SHIPPING", "PLAIN", "8")
    js.create_stream(name="COPY", mirror=StreamSource(name="PLAIN"))
    assert "puts no partition" in refused("COPY", "OTHER", "8")
    js.stream("SHIPPING").update(subjects=["ship.*.*", "bare"])
    js.publish("bare", b"")
    assert "1 message of stream SHIPPING outside '*.ship.*.*'" in refused("SHIPPING", "OTHER", "8")
    assert sorted(js.stream_names()) == ["COPY", "PLAIN", "SHIPPING"]
    work = js.stream("SHIPPING").info().config
    js.delete_stream("SHIPPING")
    js.create_stream(
        name="SHIPPING", subject_transform=work.subject_transform, retention="interest"
    )
    assert "keeps messages for its consumers (interest)" in refused("SHIPPING", "OTHER", "8")


@pytest.mark.parametrize(
    ("src", "dest", "renumbering"),
    [
        ("o.*", "{{partition(4,1)}}.o.{{wildcard(1)}}", "{{partition(9,2)}}.o.{{wildcard(2)}}"),
        ("o.*.>", "{{ Partition(2, 1) }}.o.{{wildcard(1)}}.>", None),
        (
            "*.*.>",
            "{{partition(2, 2, 1)}}.{{wildcard(1)}}.{{ wildcard(2) }}.>",
            "{{partition(9,3,2)}}.{{wildcard(2)}}.{{wildcard(3)}}.>",
        ),
        ("o.*", "{{partition(4)}}.o.{{wildcard(1)}}", None),
        ("o.*", "{{partition(4,1)}}.p.{{wildcard(1)}}", None),
        ("o.*.*", "{{partition(4,1)}}.o.{{wildcard(2)}}.{{wildcard(1)}}", None),
        ("o.*", "x.{{partition(4,1)}}.o.{{wildcard(1)}}", None),
    ],
)
def test_a_stored_subject_is_numbered_by_the_same_key(
    src: str, dest: str, renumbering: str | None
) -> None:
    config = StreamConfig(name="S", subject_transform=SubjectTransformConfig(src=src, dest=dest))
    if renumbering is None:
        with pytest.raises(RepartitionError):
            numbering_of(config)
        return
    found = numbering_of(config).renumbering(9)
    assert (found.src, found.dest) == (f"*.{src}", renumbering)
