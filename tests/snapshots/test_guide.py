"""The page about backups: its program runs, its commands work."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import guides
import peers
from headrace import sync
from headrace.cli import main

GUIDE = guides.ROOT / "docs" / "backup.md"


async def test_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for block in guides.blocks_of(GUIDE):
        await guides.run_block(
            block._replace(code=block.code.replace("/tmp", str(tmp_path))), names
        )
        assert capsys.readouterr().out.splitlines() == block.printed


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = peers.start_headrace(tmp_path / "server", flags=["--sync", "os"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("NATS_URL", server.url)
    Path("check.json").write_text(json.dumps({"name": "x", "subjects": ["check.>"]}))
    try:
        with sync.connect(server.url) as connection:
            js = connection.jetstream()
            js.create_stream(name="ORDERS", subjects=["orders.>"])
            js.publish("orders.1", b"1")
            run("headrace stream ")
            assert sorted(js.stream_names()) == ["ORDERS", "ORDERS_CHECK"]
    finally:
        server.stop()


def run(words: str) -> None:
    """The page's commands that begin so."""
    commands = [each for each in guides.commands_of(GUIDE) if each.startswith(words)]
    assert len(commands) >= 5
    for command in commands:
        assert main(shlex.split(command)[1:]) in (0, None), command


def test_the_commands_about_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with sync.Broker(store_dir="data") as broker, broker.connect() as connection:
        js = connection.jetstream()
        js.create_stream(name="ORDERS", subjects=["orders.>"])
        js.publish("orders.1", b"1")
    run("headrace store ")
    assert Path("lines/ORDERS.jsonl").read_text().count("\n") == 1
    assert (tmp_path / "saved" / "ORDERS" / "backup.json").exists()
