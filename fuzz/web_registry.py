"""A bucket of schemas that strangers wrote, as console and command line show it.

What a reader makes of such a document is played by ``target_schemas.py``. Here the documents only have to be
shown: a command ends by itself, with its own codes, without a traceback, and what it calls JSON is JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
from typing import Any, Final

from headrace.errors import HeadraceError
from jobs_requests import text
from mutation import mutated
from target_schemas import TARGETS

__all__ = ["BUCKET", "COMMANDS", "KEYS", "BrokenCommandError", "fill", "run_command", "store"]

BUCKET: Final = "SCHEMAS"
KEYS: Final = ("1", "2", "orders.1", "orders.latest")
COMMAND_S: Final = 120.0
_MESSAGES_MAX: Final = 500
_DOCUMENT_MAX: Final = 200_000
_CODES: Final = (0, 1, 3)  # docs/cli.md has them; no command here is misspelt
COMMANDS: Final = (
    *("kv ls", f"kv ls {BUCKET}", f"kv ls {BUCKET} -n", f"kv ls {BUCKET} -j", f"kv info {BUCKET}"),
    *(f"kv {verb} {BUCKET} {key}" for verb in ("get", "history") for key in KEYS),
    *(f"kv get {BUCKET} {key} {how}" for how in ("-r", "-j", "--yaml") for key in KEYS),
    *(f"stream view KV_{BUCKET} 100", f"stream view KV_{BUCKET} 100 -j"),
    *(f"stream view KV_{BUCKET} 100 -r", f"stream view KV_{BUCKET} 100 --yaml"),
    *(f"stream subjects KV_{BUCKET}", f"stream get KV_{BUCKET} --last-for $KV.{BUCKET}.1"),
    *("stream report", f"stream info KV_{BUCKET} -j"),
)


class BrokenCommandError(Exception):
    """A command did not do what it promises."""


async def fill(js: Any, rng: random.Random) -> None:
    """Make the bucket, with a document under each key."""
    await js.create_key_value(bucket=BUCKET, history=5, max_bytes=64 << 20)
    for key in KEYS:
        await js.publish(f"$KV.{BUCKET}.{key}", _document(rng))
    for _ in range(20):
        await store(js, rng)


async def store(js: Any, rng: random.Random) -> None:
    """Put one document, mostly where a schema is looked for; what the broker refuses is not there."""
    key = rng.choice(KEYS)
    if rng.random() < 0.2:
        key = rng.choice(("9" * 200, "a\x1b[31mb", "\u202eabc", "é", "-j", "$", "=a/b", "x.y.z"))
    headers = {}
    if rng.random() < 0.2:
        line = text(rng).decode("utf-8", "replace")[:1000].translate({10: 32, 13: 32, 0: 32})
        name = rng.choice(("KV-Operation", "schema-id", "Nats-TTL", "Content-Type"))
        headers[name] = rng.choice(("DEL", "PURGE", "1", line))
    with contextlib.suppress(HeadraceError):
        await js.publish(f"$KV.{BUCKET}.{key}", _document(rng), headers=headers)


def _document(rng: random.Random) -> bytes:
    if rng.random() < 0.1:
        return text(rng)[:_DOCUMENT_MAX]
    return mutated(rng.choice(TARGETS), rng)[:_DOCUMENT_MAX]


async def run_command(server: str, rng: random.Random) -> str:
    """Run one command against ``server``; returns which. Raises :class:`BrokenCommandError`."""
    command = rng.choice(COMMANDS)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headrace", *command.split(), "--server", server),
        *("--timeout", "60s"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(COMMAND_S):
            output, errors = await process.communicate()
    except TimeoutError:
        raise BrokenCommandError(f"headrace {command} did not end") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    said = errors.decode("utf-8", "replace")
    if process.returncode not in _CODES or "Traceback (most recent call last)" in said:
        raise BrokenCommandError(f"headrace {command}: {process.returncode}\n{said[-4000:]}")
    if process.returncode == 0 and command.endswith(" -j"):
        _check_json(command, output)
    return command


def _check_json(command: str, output: bytes) -> None:
    """One document, or one a line."""
    try:
        json.loads(output)
    except ValueError:
        try:
            for line in output.splitlines():
                json.loads(line)
        except ValueError as error:
            raise BrokenCommandError(f"headrace {command}: {error} in {output[:1000]!r}") from None
