"""The guide of the client is a program: it runs, and prints what stands behind ``→``."""

from __future__ import annotations

import asyncio
import re
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

import guides
import headrace
import peers
from headrace.cli import main
from headrace.errors import HeadraceError

GUIDE = guides.ROOT / "docs" / "client.md"

pytestmark = pytest.mark.peer


async def test_the_guide_does_what_it_says(
    reference_server: peers.ServerProcess,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(guides.ROOT)
    names: dict[str, Any] = {}
    try:
        for block in guides.blocks_of(GUIDE):
            if "ca.pem" in block.code:
                continue  # the next test has a server with that certificate
            code = block.code.replace("nats://127.0.0.1:4222", reference_server.url)
            await guides.run_block(block._replace(code=code.replace("/tmp", str(tmp_path))), names)
            assert capsys.readouterr().out.splitlines() == block.printed, f"line {block.line}"
    finally:
        await names["nc"].close()


@pytest.mark.parametrize("kind", ["headrace", "nats-server"])
async def test_the_part_about_an_authority_of_ones_own_does_what_it_says(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which("openssl") is None:
        peers.missing_peer("openssl", "install it")
    (typed,) = re.findall(r"(?ms)^```sh\n(openssl req.*?)^```$", GUIDE.read_text())
    making, _, serving = typed.strip().rpartition("\n")
    monkeypatch.chdir(tmp_path)
    subprocess.run(["sh", "-ec", making], check=True, capture_output=True)
    program, verb, _, port, *flags = serving.split()
    assert (program, verb) == ("headrace", "serve")
    files = [str(tmp_path / each) if each.startswith("server.") else each for each in flags]
    server = peers.start_either(kind, tmp_path / "server", flags=files)
    (block,) = [each for each in guides.blocks_of(GUIDE) if "ca.pem" in each.code]
    try:
        code = block.code.replace(f"localhost:{port}", f"localhost:{server.port}")
        await guides.run_block(block._replace(code=code), {"headrace": headrace})
        assert capsys.readouterr().out.splitlines() == block.printed
        url = f"tls://localhost:{server.port}"
        with pytest.raises(HeadraceError, match="unable to get local issuer certificate"):
            await headrace.connect(url)
        trusted = ssl.create_default_context(cafile="ca.pem")
        with pytest.raises(HeadraceError, match="ip6-localhost"):
            await headrace.connect(url, tls=trusted, tls_hostname="ip6-localhost")
        words = ["server", "check", "connection", "--server", url, "--tlsca", "ca.pem"]
        assert await asyncio.to_thread(main, words) == 0
    finally:
        server.stop()


def test_the_guide_shows_what_it_prints() -> None:
    blocks = guides.blocks_of(GUIDE)
    prints = [line for block in blocks for line in block.code.splitlines() if " print(" in line]
    assert len(blocks) > 15
    assert all("# → " in line or "lambda" in line for line in prints)


def test_what_is_to_be_awaited_is_shown_with_await() -> None:
    """In the text, too: who copies ``consumption.stop()`` has a coroutine that nobody runs."""
    text = GUIDE.read_text() + (GUIDE.parent / "explanation" / "closing.md").read_text()
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"(?ms)^```.*?^```$", "", text))
    calls = [each for each in inline if re.search(r"\w\.(?:stop|drain|close|leave)\(", each)]
    assert len(calls) > 5
    assert [each for each in calls if not each.startswith("await ")] == []
