"""The bridge to Parquet of ``examples``: its page, and what is in the files after it was killed anywhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import guides
import peers
from example_programs import started
from headrace import JetStream, connect
from waiting import until

EXAMPLE = guides.ROOT / "examples" / "parquet_bridge.py"

pytestmark = [pytest.mark.peer, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def example() -> Any:
    return guides.load(EXAMPLE)


@pytest.fixture
async def js(reference_server: peers.ServerProcess) -> AsyncIterator[JetStream]:
    """A stream of eleven messages, of which one is gone."""
    async with connect(reference_server.url) as connection:
        js = connection.jetstream()
        stream = await js.create_stream(name="LAKE", subjects=["lake.*"])
        for number in range(11):
            await js.publish(f"lake.{number}", b"%d\xff" % number, headers={"Kind": "x"})
        await stream.delete_message(5)
        yield js
        await js.delete_stream("LAKE")


def sequences(folder: Path) -> list[int]:
    """Of all rows, as a reader of the folder sees them."""
    found = [pq.read_table(path)["sequence"].to_pylist() for path in sorted(folder.glob("part-*"))]
    return [each for rows in found for each in rows]


EXPECTED = [1, 2, 3, 4, 6, 7, 8, 9, 10, 11]


def test_the_page_shows_the_example() -> None:
    blocks = guides.blocks_of(guides.ROOT / "docs" / "how-to" / "spark-elsewhere.md")
    assert EXAMPLE.read_text() in [block.code for block in blocks]


async def test_each_message_is_in_one_file(
    js: JetStream, example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "ROWS", 4)
    await example.copy(js, "LAKE", example.Folder(str(tmp_path)), once=True)
    assert sequences(tmp_path) == EXPECTED
    first = pq.read_table(min(tmp_path.glob("part-*"))).to_pylist()[0]
    assert (first["subject"], first["data"], first["headers"]) == (
        "lake.0",
        b"0\xff",
        [("Kind", "x")],
    )
    await example.copy(js, "LAKE", example.Folder(str(tmp_path)), once=True)
    assert sequences(tmp_path) == EXPECTED
    await js.publish("lake.late", b"")
    await example.copy(js, "LAKE", example.Folder(str(tmp_path)), once=True)
    assert sequences(tmp_path) == [*EXPECTED, 12]


@pytest.mark.parametrize("at", ["write", "move"])
@pytest.mark.parametrize("after", range(3))
async def test_wherever_it_dies_nothing_is_left_out_or_twice(
    js: JetStream,
    example: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at: str,
    after: int,
) -> None:
    class Died(Exception):
        pass

    monkeypatch.setattr(example, "ROWS", 4)
    folder = example.Folder(str(tmp_path))
    write, left = example.pq.write_table, after

    def until_it_dies(table: pa.Table, path: str, **more: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            if at == "move":
                write(table, path, **more)
            raise Died
        write(table, path, **more)

    with monkeypatch.context() as patched:
        patched.setattr(example.pq, "write_table", until_it_dies)
        with pytest.raises(Died):
            await example.copy(js, "LAKE", folder, once=True)
    await example.copy(js, "LAKE", example.Folder(str(tmp_path)), once=True)
    assert sequences(tmp_path) == EXPECTED


async def test_a_file_without_its_end_is_written_again(
    js: JetStream, example: Any, tmp_path: Path
) -> None:
    await example.copy(js, "LAKE", example.Folder(str(tmp_path)), once=True)
    (path,) = tmp_path.glob("part-*")
    path.write_bytes(path.read_bytes()[:-20])
    await example.copy(js, "LAKE", example.Folder(str(tmp_path)), once=True)
    assert sequences(tmp_path) == EXPECTED


async def test_a_stream_that_was_made_anew_is_refused(
    js: JetStream, example: Any, tmp_path: Path
) -> None:
    await example.copy(js, "LAKE", example.Folder(str(tmp_path)), once=True)
    await js.delete_stream("LAKE")
    await js.create_stream(name="LAKE", subjects=["lake.*"])
    with pytest.raises(SystemExit, match="made anew"):
        await example.copy(js, "LAKE", example.Folder(str(tmp_path)), once=True)


async def test_it_goes_on_until_it_is_ended(
    js: JetStream, reference_server: peers.ServerProcess, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    program = EXAMPLE.read_text().replace("SECONDS = 30.0", "SECONDS = 0.2")
    (tmp_path / "bridge.py").write_text(program)
    words = ("bridge.py", "LAKE", str(folder), reference_server.url)
    log = tmp_path / "log"
    async with started(*words, url=reference_server.url, log=log, folder=tmp_path) as bridge:
        await until(lambda: sequences(folder) == EXPECTED, within=60)
        await js.publish("lake.late", b"")
        await until(lambda: sequences(folder) == [*EXPECTED, 12], within=60)
        assert "ended; the next start goes on" in await bridge.ended(told=True)
