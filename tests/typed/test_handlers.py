"""One handler is typed for messages of consumers and of groups: mypy sees what takes it and what does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """\
from headrace import Consumer, JetStream, JetStreamMessage
from headrace.groups import GroupMessage, elastic, static
from headrace.testing import made_group_message, made_message
from headrace.worker import Delivered, current


async def either(message: Delivered) -> None:
    if message.metadata.delivered > 3:
        await message.term("tried often")
    print(message.subject, message.payload, message.headers.get("Kind"), message.is_answered)
    await message.in_progress()
    await message.nak(1.5)
    await message.ack()
    await message.ack_sync(timeout=5)


def plain(message: Delivered) -> None:
    message.ack()


async def of_group(message: GroupMessage) -> None:
    print(message.partition)


async def of_consumer(message: JetStreamMessage) -> None:
    await message.respond(b"")


async def use(js: JetStream, consumer: Consumer) -> None:
    elastic.join(js, "S", "g", "m", either)
    elastic.join(js, "S", "g", "m", plain, concurrency=3, key=lambda message: message.subject)
    elastic.join(js, "S", "g", "m", of_group)
    static.join(js, "S", "g", "m", either)
    consumer.consume(either)
    consumer.consume(plain)
    consumer.consume(of_consumer)
    await either(made_message(b"1"))
    await either(made_group_message(b"1"))
    await of_group(made_group_message(b"1"))
    await of_consumer(made_message(b"1"))
    if (message := current()) is not None:
        await either(message)
    elastic.join(js, "S", "g", "m", of_consumer)  # wrong
    static.join(js, "S", "g", "m", of_consumer)  # wrong
    consumer.consume(of_group)  # wrong
    await of_group(made_message(b"1"))  # wrong
    await of_consumer(made_group_message(b"1"))  # wrong
"""


def test_mypy_takes_a_handler_of_both_kinds_everywhere_and_one_kind_only_where_it_fits(
    tmp_path: Path,
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    config = tmp_path / "mypy.ini"
    config.write_text(
        f"[mypy]\nmypy_path = {ROOT / 'src'}\nfollow_imports = silent\nstrict = True\n"
    )
    cache = ROOT / ".mypy_cache" / "programs"
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        config,
        "--cache-dir",
        cache,
    ]
    done = subprocess.run(
        [*command, "--output", "json", "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    found = {each["line"]: each["message"] for each in reports if each["severity"] == "error"}
    lines = PROGRAM.splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert set(found) == wrong, found
