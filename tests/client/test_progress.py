"""How far long calls are: told by the client, and shown by a bar."""

from __future__ import annotations

import io
import itertools
import sys
import types
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import peers
from headrace import ConfigurationError, TransferProgress, progress_bar, sync
from headrace.client import JetStream, ObjectStore

SIZE = 700_000
CONTENT = bytes(SIZE)
_numbers = itertools.count(1)


@pytest.fixture
async def store(js: JetStream) -> AsyncIterator[ObjectStore]:
    """A bucket with a name of its own: what is left of a deleted one must not be counted for the next."""
    bucket = f"PROGRESS{next(_numbers)}"
    yield await js.create_object_store(bucket)
    await js.delete_object_store(bucket)


def check(told: list[TransferProgress], total: int = SIZE) -> None:
    """Each says more than the one before, and the last one that all is done."""
    sizes = [each.nbytes for each in told]
    assert len(told) > 2 and sizes == sorted(sizes) and sizes[-1] == SIZE
    assert {each.total_bytes for each in told} == {total}
    (stream,) = {each.stream for each in told}
    assert stream.startswith("OBJ_PROGRESS")
    assert told[-1].percent == (100.0 if total else None)


async def test_an_object_tells_how_far_it_is(store: ObjectStore, tmp_path: Path) -> None:
    told: list[TransferProgress] = []
    await store.put("a", CONTENT, progress=told.append)
    check(told)
    (tmp_path / "file").write_bytes(CONTENT)
    for call in (
        store.put_file("a", tmp_path / "file", progress=told.append),
        store.get("a", progress=told.append),
        store.get_file("a", tmp_path / "copy", progress=told.append),
    ):
        told.clear()
        await call
        check(told)
    assert (tmp_path / "copy").read_bytes() == CONTENT


async def test_of_a_file_that_was_read_from_the_rest_counts(store: ObjectStore) -> None:
    told: list[TransferProgress] = []
    file = io.BytesIO(b"head" + CONTENT)
    file.seek(4)
    await store.put("a", file, progress=told.append)
    check(told)
    assert await store.get("a") == CONTENT


async def test_where_nobody_knows_the_end_there_is_no_percentage(store: ObjectStore) -> None:
    def pieces() -> Iterator[bytes]:
        for start in range(0, SIZE, 70_000):
            yield CONTENT[start : start + 70_000]

    told: list[TransferProgress] = []
    await store.put("a", pieces(), progress=told.append)
    check(told, total=0)


async def test_what_progress_raises_ends_the_put_and_nothing_is_left(store: ObjectStore) -> None:
    def stop(now: TransferProgress) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError):
        await store.put("a", CONTENT, progress=stop)
    assert (await store.status()).size == 0
    assert await store.list() == []


async def test_what_cannot_be_called_is_refused(store: ObjectStore) -> None:
    async def later(now: TransferProgress) -> None: ...

    with pytest.raises(ConfigurationError, match="progress must be a plain function"):
        await store.put("a", CONTENT, progress=later)
    with pytest.raises(ConfigurationError, match="progress"):
        await store.get("a", progress="yes")  # type: ignore[arg-type]


def test_the_blocking_client_tells_as_much(
    reference_server: peers.ServerProcess, tmp_path: Path
) -> None:
    told: list[TransferProgress] = []
    with sync.connect(reference_server.url) as connection:
        js = connection.jetstream()
        bucket = f"PROGRESS{next(_numbers)}"
        store = js.create_object_store(bucket)
        try:
            store.put("a", CONTENT, progress=told.append)
            check(told)
            told.clear()
            with store.open("a", progress=told.append) as reader:
                assert reader.read() == CONTENT
            check(told)
            stream = js.stream(f"OBJ_{bucket}")
            told.clear()
            stream.backup(tmp_path / "backup", progress=told.append)
            assert told and told[-1].percent is not None
        finally:
            js.delete_object_store(bucket)


def through(percent: int) -> TransferProgress:
    return TransferProgress("S", percent * 10, 1000)


def test_tqdm_draws_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[object] = []

    class Bar:
        def __init__(self, **settings: object) -> None:
            drawn.append((settings["desc"], settings["total"]))

        def update(self, more: int) -> None:
            drawn.append(more)

        def close(self) -> None:
            drawn.append("closed")

    module = types.ModuleType("tqdm.auto")
    module.tqdm = Bar  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", module)
    with progress_bar("backup") as bar:
        for percent in (10, 40, 100):
            bar(through(percent))
    assert drawn == [("backup", 1000), 100, 300, 600, "closed"]


def test_rich_draws_where_there_is_no_tqdm(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with progress_bar() as bar:
        bar(through(50))
        bar(through(100))
    said = capsys.readouterr().err
    assert said.strip().startswith("S ") and "1.0/1.0 kB" in said


def test_lines_are_written_where_nothing_draws(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("tqdm", "rich", "rich.console"):
        monkeypatch.setitem(sys.modules, name, None)
    with progress_bar("copy") as bar:
        for percent in range(0, 101, 5):
            bar(through(percent))
        bar(TransferProgress("S", 5, 0))  # nobody knows how much there is
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"copy: {percent} %" for percent in range(0, 101, 10)]


def test_a_bar_that_was_never_told_anything_draws_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress_bar("idle"):
        pass
    assert capsys.readouterr().err == ""


def test_more_than_was_expected_is_all_of_it() -> None:
    assert TransferProgress("S", 12, 10).percent == 100.0
    assert TransferProgress("S", 0, 0).percent is None
