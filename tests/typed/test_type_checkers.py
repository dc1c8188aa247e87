"""mypy and pyright see a wrong keyword or value where it is written, in either client.

Each line below is a program's. Both checkers read all of them at once; they must find an error in each
wrong line, and none in the right ones.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

WRONG = """
js.create_stream(name="S", subject="s.>")
js.create_stream(name="S", retention="worq")
js.create_stream(name="S", storage="disk")
js.create_stream(name="S", discard="newest")
js.create_stream(name="S", max_age="1d")
js.create_stream(name=5)
js.update_stream(name="S", compression="gzip")
js.create_or_update_stream(name="S", replicas=3)
js.create_consumer("S", durable="c")
js.create_consumer("S", ack_policy="manual")
js.create_consumer("S", ack_wait="30s")
js.update_consumer("S", name="c", deliver_policy="first")
js.create_or_update_consumer("S", name="c", replay_policy="slow")
js.ordered_consumer("S", ack_policy="explicit")
js.create_key_value("B", max_history=5)
js.update_key_value("B", history="5")
js.create_or_update_key_value("B", storage="disk")
js.create_object_store("O", max_byte=5)
js.update_object_store("O", ttl="1d")
js.create_or_update_object_store("O", compression="s2")
stream.update(retention="queue")
stream.create_consumer(ack_wait="30s")
stream.create_consumer(filter_subject=["a", "b"])
stream.update_consumer(name="c", max_deliveries=3)
stream.create_or_update_consumer(priority_policy="pinned")
stream.ordered_consumer(deliver_policy="newest")
consumer.update(max_ack_pending="many")
consumer.fetch(10, max_wait="1s")
consumer.fetch(10, groups="g")
worker(queue, concurency=5)
worker(queue, lease_s="30s")
connection.add_service("calc", versions="1.0.0")
connection.jetstream(domains="hub")
connection.request("a", timeouts=1)
connection.publish("a", "text")
js.publish("a", 5)
connect("nats://127.0.0.1", tokn="x")
connect("nats://127.0.0.1", connect_timeout="1s")
Broker(store_dirr="data")
Broker(sync=5)
Broker(pin_handover="later")
"""

RIGHT = """
js.create_stream(name="S", subjects="s.>", retention="workqueue", max_age=timedelta(days=1))
js.create_stream(StreamConfig(name="S"), subjects=["a", "b"], discard="new", metadata={"a": "b"})
js.create_consumer("S", durable_name="c", ack_wait=30, backoff=[1, 2.5], opt_start_time=now)
js.ordered_consumer("S", filter_subjects=("a", "b"), deliver_policy="new")
js.create_key_value("B", history=5, ttl=timedelta(hours=1))
js.create_object_store("O", max_bytes=1_000_000, compression=True)
stream.create_consumer(ConsumerConfig(durable_name="c"), ack_policy="all")
consumer.update(max_ack_pending=5)
consumer.fetch(10, max_wait=0.5, group="g")
connection.publish("a", bytearray(b"x"), headers={"A": "b"})
connection.publish("a", memoryview(b"x"))
connection.request("a", bytearray(b"x"))
connection.request("a", memoryview(b"x"))
js.publish("a", bytearray(b"x"), msg_id="1")
js.publish("a", memoryview(b"x"))
connect("nats://127.0.0.1", token="x", connect_timeout=1)
Broker(store_dir="data", port=4222, sync="os", pin_handover="drain")
"""

HEAD = """\
from datetime import datetime, timedelta

from headrace import ConsumerConfig, StreamConfig
from headrace.jobs.client import worker
from headrace.jobs.client.{jobs} import Queue
from {room} import Broker, Connection, Consumer, JetStream, Stream, connect

now = datetime.now()


{define} use(
    connection: Connection, js: JetStream, stream: Stream, consumer: Consumer, queue: Queue
) -> None:
"""

Found = set[tuple[str, int]]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Found]:
    """The folder of programs, one for each client, and the lines of them that are wrong."""
    folder = tmp_path_factory.mktemp("programs")
    expected: Found = set()
    for name, room, jobs, define in (
        ("asyncio_client.py", "headrace", "aio", "async def"),
        ("blocking_client.py", "headrace.sync", "blocking", "def"),
    ):
        lines = HEAD.format(room=room, define=define, jobs=jobs).splitlines()
        for statement in [*RIGHT.split("\n"), *WRONG.split("\n")]:
            awaits = name.startswith("asyncio") and not statement.startswith(
                ("Broker", "connection.jet", "worker")
            )
            lines.append(f"    {'await ' if awaits else ''}{statement}" if statement else "")
            if statement and statement in WRONG.split("\n"):
                expected.add((name, len(lines)))
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder, expected


def run(command: list[Any], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_mypy_finds_each(programs: tuple[Path, Found]) -> None:
    folder, expected = programs
    config = folder / "mypy.ini"
    cache = ROOT / ".mypy_cache" / "programs"  # a second run takes a tenth of the first one's time
    config.write_text(
        f"[mypy]\nmypy_path = {ROOT / 'src'}\nfollow_imports = silent\nstrict = True\n"
    )
    command = [sys.executable, "-m", "mypy", "--config-file", config, "--cache-dir", cache]
    said = run([*command, "--output", "json", "asyncio_client.py", "blocking_client.py"], folder)
    reports = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    found = {(r["file"], r["line"]) for r in reports if r["severity"] == "error"}
    assert found == expected


def test_pyright_finds_each(programs: tuple[Path, Found]) -> None:
    folder, expected = programs
    settings = {"typeCheckingMode": "standard", "extraPaths": [str(ROOT / "src")]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    said = run([sys.executable, "-m", "basedpyright", "--outputjson"], folder)
    found = {
        (Path(report["file"]).name, report["range"]["start"]["line"] + 1)
        for report in json.loads(said)["generalDiagnostics"]
        if report["severity"] == "error"
    }
    assert found == expected
