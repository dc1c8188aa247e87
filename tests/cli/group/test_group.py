"""``headrace group`` against a broker: verbs, tables, JSON, questions, and what is wrong."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

import peers
from headrace import sync
from headrace.api.streams import SubjectTransformConfig
from headrace.cli import main
from headrace.cli.group.arguments import mapping, partitioning_filter, ranges
from headrace.cli.group.text import absent_text
from headrace.client import connect
from headrace.groups import ChangeProgress, MemberMapping, PartitioningFilter, elastic
from waiting import until_here


class Done(NamedTuple):
    status: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[peers.ServerProcess]:
    server = peers.start_headrace(tmp_path_factory.mktemp("group"), flags=["--sync", "os"])
    yield server
    server.stop()


@pytest.fixture
def js(server: peers.ServerProcess) -> Iterator[sync.JetStream]:
    with sync.connect(server.url) as connection:
        js = connection.jetstream()
        transform = SubjectTransformConfig(
            src="part.*", dest="{{partition(4,1)}}.part.{{wildcard(1)}}"
        )
        js.create_stream(name="ORDERS", subjects=["orders.*"], storage="memory")
        js.create_stream(
            name="PARTS", subjects=["part.*"], subject_transform=transform, storage="memory"
        )
        yield js
        for name in list(js.stream_names()):
            js.delete_stream(name)


@pytest.fixture
def run(
    js: sync.JetStream,
    server: peers.ServerProcess,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Run:
    """Run the command in this process."""
    monkeypatch.setenv("NATS_URL", server.url)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def run(*arguments: str, answer: str = "") -> Done:
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        try:
            status = main(["group", *arguments])
        except SystemExit as left:
            status = int(left.code or 0)
        return Done(status, *capsys.readouterr())

    return run


def told(done: Done) -> Any:
    assert (done.status, done.err) == (0, "")
    return json.loads(done.out)


def test_an_elastic_group_from_its_creation_to_its_end(run: Run, js: sync.JetStream) -> None:
    created = run(
        *("elastic", "create", "ORDERS", "billing", "6", "--filter", "orders.*:1"),
        *("--max-buffered-msgs", "100"),
    )
    assert created == (
        0,
        (
            "elastic group billing of stream ORDERS\n"
            "Partitions:  6\n"
            "Layout:      interoperable\n"
            "Filters:     orders.*:1\n"
            "Work queue:  ORDERS-billing, 100 messages\n"
        ),
        "",
    )
    assert run("elastic", "add", "ORDERS", "billing", "b", "a", "c").out == (
        "MEMBER  PARTITIONS\na       0-1\nb       2-3\nc       4-5\n"
    )
    assert run("elastic", "drop", "ORDERS", "billing", "c").status == 0
    assert run("elastic", "ls", "ORDERS").out.splitlines() == [
        "GROUP    PARTITIONS  LAYOUT         FILTERS     MEMBERS",
        "billing  6           interoperable  orders.*:1  a b",
    ]
    info = told(run("elastic", "info", "ORDERS", "billing", "--json"))
    assert (info["max_members"], info["consumer_stream"]) == (6, "ORDERS-billing")
    assert info["partitioning_filters"] == [{"filter": "orders.*", "partitioning_wildcards": [1]}]
    assert info["members"][1] == {
        "member": "b",
        "partitions": [3, 4, 5],
        "consumers": ["b"],
        "is_active": False,
    }
    assert run("elastic", "info", "ORDERS", "billing").out.splitlines()[-3:] == [
        "MEMBER  STATE     COUNT  PARTITIONS",
        "a       inactive  3      0-2",
        "b       inactive  3      3-5",
    ]
    assert told(run("elastic", "create-mapping", "ORDERS", "billing", "z:5,0-4", "--json"))[
        "members"
    ] == [{"member": "z", "partitions": [5, 0, 1, 2, 3, 4], "consumers": ["z"]}]
    assert run("elastic", "delete-mapping", "ORDERS", "billing", answer="y\n").out == "no members\n"
    assert told(run("elastic", "rm", "-f", "ORDERS", "billing", "--json")) == {"deleted": "billing"}
    assert told(run("elastic", "ls", "ORDERS", "--json")) == []
    assert "ORDERS-billing" not in list(js.stream_names())


def test_a_group_begins_where_it_is_told_to(run: Run, js: sync.JetStream) -> None:
    for number in range(5):
        js.publish("orders.x", b"%d" % number)
    for name, where, first in (("a", "now", 6), ("b", "3", 3), ("c", "1h", 0), ("d", "all", 0)):
        assert run("elastic", "create", "ORDERS", name, "2", "--start", where).status == 0
        (source,) = js.stream(f"ORDERS-{name}").info().config.sources
        assert (source.opt_start_seq, source.opt_start_time is not None) == (first, where == "1h")
    done = run("elastic", "create", "ORDERS", "e", "2", "--start", "soon")
    assert (done.status, "accepted are all, now, a sequence" in done.err) == (2, True)


def test_a_group_begins_where_another_one_is(run: Run, js: sync.JetStream) -> None:
    for number in range(3):
        js.publish(f"part.{number}", b"")
    js.create_consumer("PARTS", durable_name="worker", deliver_policy="new")
    balanced = ("static", "create", "balanced", "PARTS")
    done = run(*balanced, "a", "4", "m", "--start", "consumer:worker")
    assert "Begins:      with message 4" in done.out
    for number, where in enumerate(("group:a", "static:a", "4", "now")):
        found = told(run(*balanced, f"g{number}", "4", "m", "--start", where, "--json"))
        assert found["start_sequence"] == 4
    done = run(*balanced, "b", "4", "m", "--start", "elastic:a")
    assert (done.status, "stream 'PARTS' has no group 'a'" in done.err) == (1, True)
    done = run(*balanced, "b", "4", "m", "--start", "consumer:")
    assert (done.status, "consumer:NAME or group:NAME" in done.err) == (2, True)


def test_the_limits_of_a_work_queue_are_edited(run: Run, js: sync.JetStream) -> None:
    run("elastic", "create", "ORDERS", "billing", "6", "--max-buffered-msgs", "10")
    done = run("elastic", "edit", "ORDERS", "billing", "--max-buffered-msgs", "20", "--json")
    assert (done.status, json.loads(done.out)["max_buffered_messages"]) == (0, 20)
    assert run("elastic", "edit", "ORDERS", "billing", "--max-buffered-bytes", "4096").status == 0
    config = js.stream("ORDERS-billing").info().config
    assert (config.max_msgs, config.max_bytes) == (20, 4096)
    done = run("elastic", "edit", "ORDERS", "billing")
    assert (done.status, "give --max-buffered-msgs N" in done.err) == (1, True)
    done = run("elastic", "edit", "ORDERS", "bill", "--max-buffered-msgs", "5")
    assert (done.status, "did you mean 'billing'?" in done.err) == (1, True)


def test_partitions_and_key_are_changed(run: Run, js: sync.JetStream) -> None:
    run("elastic", "create", "ORDERS", "billing", "3", "--filter", "orders.*:1")
    done = run("elastic", "change", "ORDERS", "billing", "--partitions", "5", "--json")
    found = json.loads(done.out)
    assert (found["max_members"], found["changed"], found["change"]) == (5, 1, None)
    done = run("elastic", "change", "ORDERS", "billing")
    assert (done.status, "is not being changed" in done.err) == (1, True)
    js.publish("orders.x", b"nobody handles it")
    until_here(lambda: js.stream("ORDERS-billing").info().state.messages == 1)
    leave_a_change(js)
    assert (
        "draining, to 2 partitions of orders.*:1, behind message 1"
        in run("elastic", "info", "ORDERS", "billing").out
    )
    (row,) = json.loads(run("elastic", "ls", "ORDERS", "--json").out)
    assert (row["change"]["phase"], row["change"]["wanted"]["max_members"]) == ("draining", 2)
    assert "5, draining" in run("elastic", "ls", "ORDERS").out
    done = run("elastic", "edit", "ORDERS", "billing", "--max-buffered-msgs", "9")
    assert (done.status, "--undo undoes it" in done.err) == (1, True)
    done = run("elastic", "change", "ORDERS", "billing", "--undo", "--partitions", "2")
    assert (done.status, "takes no settings" in done.err) == (1, True)
    done = run("elastic", "change", "ORDERS", "billing", "--undo")
    assert (done.status, "Partitions:  5" in done.out) == (0, True)
    done = run("elastic", "change", "ORDERS", "bill", "--partitions", "2")
    assert (done.status, "did you mean 'billing'?" in done.err) == (1, True)


def leave_a_change(js: sync.JetStream) -> None:
    """Begin a change that nobody drains the queue for, and leave it while it waits for that."""

    async def work() -> None:
        draining = asyncio.Event()

        def note(progress: ChangeProgress) -> None:
            if progress.phase == "draining":
                draining.set()

        async with connect(js.connection.server) as connection, asyncio.timeout(60):
            change = asyncio.create_task(
                elastic.change(
                    connection.jetstream(), "ORDERS", "billing", max_members=2, on_progress=note
                )
            )
            await draining.wait()
            change.cancel()
            await asyncio.wait([change])

    asyncio.run(work())


def test_static_groups_balanced_and_mapped(run: Run) -> None:
    made = told(
        run(
            "static",
            "create",
            "balanced",
            "PARTS",
            "g",
            "4",
            "x",
            "y",
            "--filter",
            "part.*",
            "--json",
        )
    )
    assert [each["partitions"] for each in made["members"]] == [[0, 1], [2, 3]]
    assert made["filters"] == ["part.*"]
    mapped = run("static", "create", "mapped", "PARTS", "h", "4", "x:0-3")
    assert "Mappings:    x:0-3\n" in mapped.out
    made = told(
        run(
            "static", "create", "--json", "balanced", "--layout", "per_partition", "PARTS", "p", "4"
        )
    )
    assert made["layout"] == "per_partition"
    assert [line.split()[0] for line in run("static", "ls", "PARTS").out.splitlines()] == [
        "GROUP",
        "g",
        "h",
        "p",
    ]
    assert run("static", "delete", "PARTS", "g", answer="yes\n").status == 0
    assert run("static", "info", "PARTS", "g").status == 1


@pytest.mark.parametrize("answer", ["", "n\n", "\n", "nonsense\n"])
def test_nothing_is_destroyed_without_a_yes(run: Run, answer: str) -> None:
    run("elastic", "create", "ORDERS", "g", "2")
    asked = run("elastic", "delete", "ORDERS", "g", answer=answer)
    assert asked.status == 1
    assert (
        "Really delete elastic group g of stream ORDERS with its work queue stream? [y/N]"
        in asked.err
    )
    assert "headrace: nothing was changed; answer y, or give --force" in asked.err
    assert run("elastic", "info", "ORDERS", "g").status == 0


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        ("elastik ls ORDERS", 2, "no kind of group 'elastik'; did you mean 'elastic'?"),
        ("nonsense", 2, "no kind of group 'nonsense'; accepted are static, elastic"),
        ("elastic crate ORDERS g 1", 2, "no command 'crate'; did you mean 'create'?"),
        (
            "static add ORDERS g m",
            2,
            "no command 'add'; accepted are ls, info, create, delete, mem",
        ),
        ("elastic create ORDERS g", 2, "Missing argument 'MAX-MEMBERS'"),
        (
            "elastic create ORDERS g x",
            2,
            "Invalid value for 'MAX-MEMBERS': 'x' is not a valid integer",
        ),
        ("elastic create ORDERS g 0", 1, "the max number of members must be >= 1"),
        ("elastic create ORDERS a.b 1", 1, "group name 'a.b': accepted are 1 to 128"),
        ("elastic create ORDERS g 1 --filter orders.*:2", 1, "indexes must be between 1 and the"),
        (
            "elastic create ORDRES g 1",
            1,
            "consumer group's stream does not exist: stream not found",
        ),
        ("elastic ls ORDRES", 1, "there is no stream 'ORDRES'; did you mean 'ORDERS'?"),
        ("elastic info ORDERS biling", 1, "did you mean 'billing'?"),
        ("elastic info ORDERS xxxx", 1, "there are: billing"),
        ("elastic delete -f PARTS g", 1, "the stream has no such groups"),
        (
            "elastic minfo ORDERS billing member_b",
            1,
            "no member 'member_b'; did you mean 'member_a'?",
        ),
        ("elastic sd ORDERS billing member_a", 1, "no instance of member 'member_a' of elastic"),
        ("elastic sd ORDERS billing x", 1, "not in the current elastic consumer group membership"),
        ("elastic create-mapping ORDERS billing a", 2, "'a': accepted is a member with its partit"),
        ("elastic create-mapping ORDERS billing a:0-70000", 2, "a partition is below 65536"),
        (
            "elastic info ORDERS billing --server nats://127.0.0.1:1",
            3,
            "no server could be reached",
        ),
        ("elastic info ORDERS billing --context none", 2, "there is no context 'none'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    run: Run, arguments: str, status: int, text: str
) -> None:
    run("elastic", "create", "ORDERS", "billing", "2")
    run("elastic", "add", "ORDERS", "billing", "member_a")
    done = run(*arguments.split())
    assert (done.status, done.out) == (status, "")
    assert text in next(line for line in done.err.splitlines() if line.startswith("headrace"))
    assert "Traceback" not in done.err


def test_a_context_says_where(run: Run, server: peers.ServerProcess, tmp_path: Path) -> None:
    contexts = tmp_path / "nats" / "context"
    contexts.mkdir(parents=True)
    (contexts / "mine.json").write_text(json.dumps({"url": server.url}))
    del os.environ["NATS_URL"]
    assert run("elastic", "ls", "ORDERS", "--context", "mine").out == "no elastic groups\n"
    assert run("elastic", "ls", "ORDERS", "--server", server.url).status == 0


def test_damaged_records_are_told_beside_the_others(run: Run, js: sync.JetStream) -> None:
    run("elastic", "create", "ORDERS", "good", "2")
    js.key_value("elastic-consumer-groups").put("ORDERS.bad", b"{}")
    done = run("elastic", "ls", "ORDERS")
    assert done.status == 1
    assert done.out.splitlines()[1].startswith("good")
    assert "the record of elastic group 'bad' of stream 'ORDERS' is invalid" in done.err


def command(server: peers.ServerProcess, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "headrace", "group", *arguments, "--server", server.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_member_consumes_and_leaves_at_ctrl_c(
    run: Run, server: peers.ServerProcess, js: sync.JetStream
) -> None:
    run("elastic", "create", "ORDERS", "g", "2", "--filter", "orders.*:1")
    run("elastic", "add", "ORDERS", "g", "m")
    for number in range(5):
        js.publish(f"orders.{number}", b"hello")
    process = command(server, "elastic", "consume", "ORDERS", "g", "m")
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(5)]
    assert sorted(line.partition(" ")[2] for line in lines) == [
        f"orders.{number}: hello\n" for number in range(5)
    ]
    info = run("elastic", "member-info", "ORDERS", "g", "m")
    assert "member m is active, partitions: 0-1" in info.out
    assert run("elastic", "info", "ORDERS", "g").out.splitlines()[-1].split()[1] == "active"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "")
    assert err.startswith("joined as m; Ctrl-C leaves\nactive, partitions 0-1, generation ")
    assert err.endswith("leaving\nstandby\nleft after 5 messages\n")
    assert js.stream("ORDERS-g").info().state.messages == 0  # they are acknowledged

    def nobody() -> bool:
        return told(run("elastic", "minfo", "ORDERS", "g", "m", "--json"))["is_active"] is False

    until_here(nobody)


def test_a_consumption_ends_with_its_group_and_speaks_json(
    run: Run, server: peers.ServerProcess, js: sync.JetStream
) -> None:
    run("static", "create", "balanced", "PARTS", "g", "4", "m")
    js.publish("part.1", b"hello")
    process = command(server, "static", "consume", "PARTS", "g", "m", "--json")
    assert process.stdout is not None
    events: list[dict[str, Any]] = []
    while not events or events[-1]["event"] != "message":
        events.append(json.loads(process.stdout.readline()))
    assert [each["event"] for each in events] == ["joined", "active", "message"]
    message = events[-1]
    assert (message["subject"], message["payload"]) == ("part.1", "hello")
    assert (message["sequence"], message["delivered"]) == (1, 1)
    assert message["generation"] == events[1]["generation"] > 0
    run("static", "delete", "-f", "PARTS", "g")
    out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    assert json.loads(out.splitlines()[-1])["event"] == "left"


def test_a_consumption_speaks_yaml(run: Run, js: sync.JetStream) -> None:
    run("static", "create", "balanced", "PARTS", "g", "4", "m")
    js.publish("part.1", b"hello")
    done = run("static", "consume", "PARTS", "g", "m", "--count", "1", "--yaml")
    assert (done.status, done.err) == (0, "")
    events = list(yaml.safe_load_all(done.out))
    assert [each["event"] for each in events[:3]] == ["joined", "active", "message"]
    assert events[-1]["event"] == "left"
    assert events[2]["payload"] == "hello"


def test_a_reader_that_goes_away_is_no_fault(server: peers.ServerProcess, run: Run) -> None:
    run("elastic", "create", "ORDERS", "g", "2")
    process = command(server, "elastic", "ls", "ORDERS")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert (process.wait(20), process.stderr.read()) == (0, "")
    process.stderr.close()


def test_a_group_speaks_yaml_and_says_what_it_would_destroy(run: Run) -> None:
    run("elastic", "create", "ORDERS", "g", "2")
    assert "stream: ORDERS\ngroup: g\n" in run("elastic", "info", "ORDERS", "g", "--yaml").out
    done = run("elastic", "rm", "ORDERS", "g", "--dry-run")
    assert done.out == "would delete elastic group g of stream ORDERS with its work queue stream\n"
    assert run("elastic", "delete-mapping", "ORDERS", "g", "--dry-run", "--json").status == 0
    assert run("elastic", "info", "ORDERS", "g").status == 0


# What is written on the command line, and what is shown


def test_filters_and_mappings_are_read() -> None:
    assert partitioning_filter("a.*.*:1,2") == PartitioningFilter("a.*.*", (1, 2))
    assert partitioning_filter("a.*:") == PartitioningFilter("a.*", ())
    assert partitioning_filter("a:b.>") == PartitioningFilter("a:b.>")
    assert partitioning_filter(">") == PartitioningFilter(">")
    assert mapping("m-1:7,0-2") == MemberMapping("m-1", (7, 0, 1, 2))
    assert ranges((7, 0, 2, 1)) == "0-2,7"
    assert ranges(()) == ""


def test_what_keeps_messages_from_a_group_is_shown_with_what_mends_it(
    run: Run, js: sync.JetStream
) -> None:
    assert run("elastic", "create", "ORDERS", "g", "2", "--filter", "orders.*:1").status == 0
    assert "✗" not in run("elastic", "ls", "ORDERS").out
    js.stream("ORDERS").update(subjects=["sales.*"])
    listed = run("elastic", "ls", "ORDERS").out.splitlines()
    text = (
        "its filter 'orders.*' matches none of the subjects that stream 'ORDERS' stores: 'sales.*'"
    )
    mend = "    headrace group elastic change ORDERS g --filter 'PATTERN:INDEXES'"
    assert listed[-2:] == [f"✗ g: {text}", mend]
    shown = run("elastic", "info", "ORDERS", "g").out.splitlines()
    assert shown[shown.index(f"✗ {text}") + 1] == mend
    assert f"✗ {text}" in run("elastic", "watch", "ORDERS", "g", "--once").out
    for verb in (["ls", "ORDERS"], ["info", "ORDERS", "g"], ["watch", "ORDERS", "g", "--once"]):
        found = json.loads(run("elastic", *verb, "--json").out)
        (trouble,) = (found[0] if isinstance(found, list) else found)["troubles"]
        assert (trouble["kind"], trouble["text"], trouble["is_certain"]) == (
            "unmatched",
            text,
            True,
        )
    refused = run("elastic", "create", "ORDERS", "h", "2", "--filter", "orders.*:1")
    assert refused.status == 1
    assert "add their subjects: headrace stream edit ORDERS --subjects" in refused.err


def test_a_change_that_waits_says_for_whom(
    run: Run, server: peers.ServerProcess, js: sync.JetStream
) -> None:
    run("elastic", "create", "ORDERS", "g", "1", "--filter", "orders.*:1")
    run("elastic", "add", "ORDERS", "g", "m")
    js.publish("orders.x", b"nobody handles it")
    until_here(lambda: js.stream("ORDERS-g").info().state.messages == 1)
    process = command(server, "elastic", "change", "ORDERS", "g", "--partitions", "2")
    assert process.stderr is not None
    said = next(line for line in process.stderr if line.startswith("the change waits"))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert said == (
        "the change waits: nobody is at work as m: start them, or drop them (headrace group elastic drop "
        "ORDERS g m); or take it back (headrace group elastic change ORDERS g --undo)\n"
    )
    assert absent_text("S", "g", ("",)) == (
        "the change waits: partitions have no member: headrace group elastic add S g MEMBER; or take it back "
        "(headrace group elastic change S g --undo)"
    )


def test_the_mappings_of_the_cg_tool(run: Run, js: sync.JetStream) -> None:
    assert run("elastic", "create", "ORDERS", "billing", "4").status == 0
    assert run("elastic", "cm", "ORDERS", "billing", "a:0,1", "b:2,3").out == (
        "MEMBER  PARTITIONS\na       0-1\nb       2-3\n"
    )
    assert run("elastic", "dm", "ORDERS", "billing", "--force").out == "no members\n"
