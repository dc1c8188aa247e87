"""What the Go implementation stores and asks, in a transcript of it, is what we store and ask.

``go_transcript.json`` was recorded from the real one on nats-server. Where ``HEADRACE_GO_PEER`` names a
program of it (``go_peer/README.md``), all is played again and must be the same, or is written anew, with
``HEADRACE_RECORD=1``.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import peers
from group_processes.crowd import Crowd, PeerVerbs
from group_processes.listening_proxy import Call, ListeningProxy
from group_processes.lives import (
    ACK_WAIT,
    GROUP,
    LIVES,
    STREAM,
    changes,
    create_again,
    pulls,
    subjects,
)
from group_processes.strangers import STRANGERS, Stranger
from group_processes.transcript import SCENARIO, our_verb, play
from group_processes.worklog import Task
from headrace.client import Connection, JetStream, connect

TRANSCRIPT = Path(__file__).with_name("go_transcript.json")
RECORD = bool(os.environ.get("HEADRACE_RECORD"))
RECORDED: dict[str, Any] = json.loads(TRANSCRIPT.read_text()) if TRANSCRIPT.exists() else {}
KINDS = ["elastic", "static"]
PCGROUPS = "github.com/synadia-io/orbit.go/pcgroups"
VERSION, COMMIT = "v0.2.1", "237e444ebcf35603d50e58c4db6cf0c6dc8e7fac"
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
VARYING = ("batch", "max_bytes")  # as much as there is room for, when it is asked


@pytest.fixture
async def js(connection: Connection) -> JetStream:
    return connection.jetstream()


@pytest.fixture
async def proxy(server: peers.ServerProcess) -> AsyncIterator[ListeningProxy]:
    async with ListeningProxy(server.host, server.port) as opened:
        yield opened


async def life_of(
    kind: str,
    server: peers.ServerProcess,
    proxy: ListeningProxy,
    js: JetStream,
    directory: Path,
    stranger: Stranger | None = None,
) -> list[Call]:
    """The calls of one member's life; ours, or a stranger's."""
    task = Task(server.url, kind, STREAM, GROUP, "", "", "", ack_wait=ACK_WAIT)
    with Crowd(directory, task, stranger) as crowd:
        peer = stranger is not None
        await crowd.stop(await LIVES[kind](crowd, js, proxy.url, peer=peer))
    return proxy.calls


# What we do


@pytest.mark.parametrize("server", ["headrace"], indirect=True)
async def test_our_verbs_store_and_ask_what_those_of_go_do(
    connection: Connection, js: JetStream, proxy: ListeningProxy
) -> None:
    async with connect(proxy.url) as listened:
        ours = await play(js, proxy, our_verb(listened.jetstream()))
    theirs = RECORDED["verbs"]
    assert [each["verb"] for each in theirs] == SCENARIO
    for name in [name async for name in js.stream_names()]:
        await js.delete_stream(name)
    for mine, other in zip(ours, theirs, strict=True):
        assert stored(mine) == stored(other), mine["verb"]
        assert {*expected(mine)} >= {*expected(other)}, mine["verb"]
        assert await made(connection, mine) == await made(connection, other), mine["verb"]
    assert sum(len(each["stores"]) for each in theirs) == len(SCENARIO) - 1  # one is there already


def stored(step: dict[str, Any]) -> list[Any]:
    """Which entry was written, and what. A deletion of ours carries the record at first, in case that it is
    not completed."""
    found: list[Any] = []
    for subject, headers, value in step["stores"]:
        deletes = headers.get("KV-Operation") == "DEL"
        entry = (subject, "DEL") if deletes else (subject, value)
        if entry not in found:
            found.append(entry)
    return found


def expected(step: dict[str, Any]) -> list[tuple[str, str]]:
    """In place of which revision each entry was written. We always say that; Go does if members change."""
    return [
        (subject, headers[EXPECTED])
        for subject, headers, _ in step["stores"]
        if EXPECTED in headers
    ]


async def made(connection: Connection, step: dict[str, Any]) -> list[Any]:
    """What the server makes of the calls."""
    found: list[Any] = []
    for subject, body in step["calls"]:
        if subject.startswith("STREAM.CREATE"):
            payload = json.dumps(body).encode()
            answer = json.loads((await connection.request(f"$JS.API.{subject}", payload)).payload)
            assert "error" not in answer, answer
            name = subject.rpartition(".")[2]
            await connection.request(f"$JS.API.STREAM.DELETE.{name}")
            found.append((subject, answer["config"]))
        else:
            found.append((subject, body))
    return found


@pytest.mark.parametrize("server", ["headrace"], indirect=True)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_member_of_ours_changes_and_pulls_what_one_of_go_does(
    kind: str,
    server: peers.ServerProcess,
    connection: Connection,
    js: JetStream,
    proxy: ListeningProxy,
    tmp_path: Path,
) -> None:
    ours = await life_of(kind, server, proxy, js, tmp_path)
    theirs = [Call(*each) for each in RECORDED["lives"][kind]]
    assert subjects(ours) == subjects(theirs)
    # With time, and a pin, come pulls that keep it.
    assert {p for p in pulls(ours) if not p[-1]} == {p for p in pulls(theirs) if not p[-1]}
    configs = [
        [
            await create_again(connection, subject, body)
            for subject, body in changes(calls)
            if subject.startswith("CONSUMER.CREATE")
        ]
        for calls in (ours, theirs)
    ]
    assert configs[0] == configs[1]
    assert len(configs[1]) == {"elastic": 3, "static": 1}[kind]


# What Go does


@pytest.fixture
def go() -> Stranger:
    return STRANGERS["go"]()


async def test_the_transcript_is_what_go_asks(
    go: Stranger,
    server: peers.ServerProcess,
    js: JetStream,
    proxy: ListeningProxy,
    tmp_path: Path,
) -> None:
    verbs = PeerVerbs(go, proxy.url)
    with verbs:
        found: dict[str, Any] = {"verbs": await play(js, proxy, verbs), "lives": {}}
    for kind in KINDS:
        for name in [name async for name in js.stream_names()]:
            await js.delete_stream(name)
        async with ListeningProxy(server.host, server.port) as own:
            (tmp_path / kind).mkdir()
            calls = await life_of(kind, server, own, js, tmp_path / kind, go)
        found["lives"][kind] = told(calls)
    found = json.loads(json.dumps(found))
    if RECORD and server.name == "nats-server":
        write(found, go)
        return
    assert {name: RECORDED[name] for name in found} == found


def told(calls: list[Call]) -> list[Any]:
    """What changes something, and the pulls, each once."""
    found: list[Any] = []
    for call in calls:
        said = [call.subject, call.body]
        if call.subject.startswith("CONSUMER.MSG.NEXT") and "group" in call.body:
            body = {name: value for name, value in call.body.items() if name not in VARYING}
            if "id" in body:
                continue  # they keep a pin: whether there are any is a matter of time
            said = [call.subject, body]
        elif not changes([call]):
            continue
        if said not in found or not call.subject.startswith("CONSUMER.MSG.NEXT"):
            found.append(said)
    pulled = [each for each in found if each[0].startswith("CONSUMER.MSG.NEXT")]
    return [each for each in found if each not in pulled] + sorted(pulled, key=json.dumps)


def write(found: dict[str, Any], go: Stranger) -> None:
    asked = subprocess.run([go.worker[0], "version"], capture_output=True, text=True, check=True)
    modules = dict(line.split() for line in asked.stdout.splitlines())
    assert modules[PCGROUPS] == VERSION, "another version: say which commit it is"
    origin = {"commit": COMMIT, "server": "nats-server 2.15.1", "modules": modules}
    document = {"origin": origin, **found}
    TRANSCRIPT.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
