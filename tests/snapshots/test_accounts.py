"""Accounts have streams of their own: backups cross from one to another, and a store tells whose they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import peers
from headrace.cli import main
from headrace.client import connect

Factory = Callable[..., peers.ServerProcess]

ACCOUNTS = """
accounts {
    A { jetstream: enabled, users: [ { user: a, password: a } ] }
    B { jetstream: enabled, users: [ { user: b, password: b } ] }
}
"""


async def test_a_stream_moves_to_another_account(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = tmp_path / "accounts.conf"
    conf.write_text(ACCOUNTS)
    server = peers.start_headrace(tmp_path / "server", flags=["-c", str(conf)])
    try:
        async with (
            connect(server.url, user="a", password="a") as one,
            connect(server.url, user="b", password="b") as other,
        ):
            stream = await one.jetstream().create_stream(name="S", subjects=["s"])
            await one.jetstream().publish("s", b"1")
            await stream.create_consumer(durable_name="c")
            await stream.backup(tmp_path / "backup")
            await other.jetstream().restore_stream(tmp_path / "backup")
        server.stop()
        assert main(["store", "check", str(server.store_dir), "--json"]) in (0, None)
        told = json.loads(capsys.readouterr().out)
        assert [(s["stream"], s["messages"], s["consumers"]) for s in told["streams"]] == [
            ("A/S", 1, 1),
            ("B/S", 1, 1),
        ]
        server.start_again()
        async with connect(server.url, user="b", password="b") as other:
            info = await (await other.jetstream().consumer("S", "c")).info()
            assert info.num_pending == 1
    finally:
        server.stop()
