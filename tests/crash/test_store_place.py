"""The store's directory on a real disk, tampered with: links, strange files, and gone altogether."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path

import pytest

from headrace.broker.store import FileStorage
from headrace.errors import StoreError, StoreFailedError
from jetstream_world import World


def flush(storage: FileStorage) -> Exception | None:
    outcome: list[Exception | None] = []
    storage.flush(outcome.append)
    return outcome[0]


def filled(directory: Path, name: str = "S") -> None:
    storage = FileStorage(directory, threaded=False)
    world = World(storage)
    client = world.client()
    client.stream(name)
    client.put(b"%b.x" % name.lower().encode(), b"1")
    world.advance(1)
    storage.close()


def linked(tmp_path: Path) -> tuple[Path, Path]:
    """A store whose stream's directory is a link to one outside."""
    root, outside = tmp_path / "store", tmp_path / "outside"
    filled(root)
    (root / "streams" / "S").rename(outside)
    (root / "streams" / "S").symlink_to(outside)
    (outside / "mine").write_text("precious")
    return root, outside


def everything(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_linked_stream_is_not_served_and_says_why(tmp_path: Path) -> None:
    root, outside = linked(tmp_path)
    before = everything(outside)
    storage = FileStorage(root, threaded=False)
    client = World(storage).client()
    assert "symbolic link" in client.stream()["error"]["description"]
    assert client.api("STREAM.INFO.S")["error"]["err_code"] == 10059
    assert any("symbolic link" in finding.what for finding in storage.report)
    assert "error" not in client.stream("T")
    storage.close()
    assert everything(outside) == before
    (root / "streams" / "S").unlink()
    outside.rename(root / "streams" / "S")
    storage = FileStorage(root, threaded=False)
    assert World(storage).client().api("STREAM.INFO.S")["state"]["messages"] == 1
    storage.close()


def test_deleting_a_linked_stream_touches_nothing_outside(tmp_path: Path) -> None:
    root, outside = linked(tmp_path)
    before = everything(outside)
    storage = FileStorage(root, threaded=False)
    client = World(storage).client()
    assert client.api("STREAM.DELETE.S")["success"]
    assert client.stream()["state"]["messages"] == 0
    storage.close()
    assert everything(outside) == before
    assert (root / "quarantine" / "streams~S").is_symlink()
    storage = FileStorage(root, threaded=False)
    assert storage.failed is None
    assert "error" not in World(storage).client().stream("T")
    storage.close()


@pytest.mark.parametrize("what", ["link", "file", "directory", "full"])
def test_strange_things_in_the_trash_are_named_and_left_alone(tmp_path: Path, what: str) -> None:
    root, outside = tmp_path / "store", tmp_path / "outside"
    filled(root)
    outside.mkdir()
    (outside / "mine").write_text("precious")
    strange = root / "trash" / "00000001"
    if what == "link":
        strange.symlink_to(outside)
    elif what == "file":
        strange.write_text("hello")
    elif what == "directory":
        strange = root / "trash" / "holiday"
        strange.mkdir()
    else:
        (strange / "within").mkdir(parents=True)
    for _ in range(2):
        storage = FileStorage(root, threaded=False)
        client = World(storage).client()
        if "error" not in client.api("STREAM.INFO.S"):
            assert client.api("STREAM.DELETE.S")["success"]
        assert storage.failed is None
        assert [finding.path for finding in storage.report] == [str(strange)]
        assert "error" not in client.stream("T")
        storage.close()
        assert os.path.lexists(strange)
        assert (outside / "mine").read_text() == "precious"
        assert [path.name for path in (root / "trash").iterdir()] == [strange.name]


def test_a_file_in_the_place_of_a_stream_does_not_fail_the_store(tmp_path: Path) -> None:
    root = tmp_path / "store"
    filled(root)
    (root / "streams" / "T").write_text("hello")
    storage = FileStorage(root, threaded=False)
    client = World(storage).client()
    assert "not a directory" in client.stream("T")["error"]["description"]
    assert storage.failed is None
    assert client.api("STREAM.DELETE.T")["success"]
    assert "error" not in client.stream("T")
    storage.close()
    assert (root / "quarantine" / "streams~T").read_text() == "hello"


@pytest.mark.parametrize("part", ["meta", "streams", "trash", "quarantine"])
def test_links_in_the_place_of_the_stores_own_directories_are_refused(
    tmp_path: Path, part: str
) -> None:
    root, outside = tmp_path / "store", tmp_path / "outside"
    filled(root)
    (root / "quarantine").mkdir()
    (root / part).rename(outside)
    (root / part).symlink_to(outside)
    with pytest.raises(StoreError, match=f"{part} is a symbolic link; the store needs"):
        FileStorage(root, threaded=False)


@pytest.mark.parametrize(
    "file", ["lock", "meta/watermark", "meta/journal-00000001", "streams/S/0000000001.seg"]
)
def test_files_behind_links_are_not_written_to(tmp_path: Path, file: str) -> None:
    root, outside = tmp_path / "store", tmp_path / "outside"
    filled(root)
    (root / file).rename(outside)
    (root / file).symlink_to(outside)
    before = outside.read_bytes()
    try:
        storage = FileStorage(root, threaded=False)
    except StoreError as error:
        assert file in ("lock", "meta/watermark")
        assert "symbolic" in str(error)
    else:
        client = World(storage).client()
        assert storage.report
        assert "error" not in client.api("STREAM.INFO.S")  # without what cannot be read
        assert client.api("STREAM.DELETE.S")["success"]
        assert storage.failed is None
        storage.close()
    assert outside.read_bytes() == before


def test_a_stream_whose_directory_is_gone_can_be_deleted(tmp_path: Path) -> None:
    root = tmp_path / "store"
    filled(root)
    storage = FileStorage(root, threaded=False)
    client = World(storage).client()
    shutil.rmtree(root / "streams" / "S")
    assert client.api("STREAM.DELETE.S")["success"]
    assert storage.failed is None
    assert client.stream()["state"]["messages"] == 0
    storage.close()


def test_a_tidied_trash_is_made_again(tmp_path: Path) -> None:
    root = tmp_path / "store"
    filled(root)
    storage = FileStorage(root, threaded=False)
    client = World(storage).client()
    (root / "trash").rmdir()
    assert client.api("STREAM.DELETE.S")["success"]
    assert storage.failed is None
    storage.close()


@pytest.mark.parametrize("gone", ["all", "moved", "replaced", "segment", "journal"])
@pytest.mark.parametrize("sync", ["always", "os"])
def test_nothing_is_acknowledged_once_the_files_are_gone(
    tmp_path: Path, gone: str, sync: str
) -> None:
    root = tmp_path / "store"
    storage = FileStorage(root, threaded=False, sync=sync)
    store = storage.create_stream("S")
    store.append(b"s", b"", b"1", 1)
    storage.meta.put("a", b"1")
    assert flush(storage) is None
    if gone == "all":
        shutil.rmtree(root)
    elif gone in ("moved", "replaced"):
        root.rename(tmp_path / "elsewhere")
    elif gone == "segment":
        (root / "streams" / "S" / "0000000001.seg").unlink()
    else:
        (root / "meta" / "journal-00000001").unlink()
    if gone == "replaced":
        shutil.copytree(tmp_path / "elsewhere", root)
    if gone == "journal":
        storage.meta.put("a", b"2")
    else:
        store.append(b"s", b"", b"2", 1)
    assert isinstance(flush(storage), StoreFailedError)
    assert "removed" in str(storage.failed)
    with pytest.raises(StoreFailedError):
        store.append(b"s", b"", b"3", 1)
    storage.close()


def test_who_waits_for_a_flush_is_called_although_another_one_goes_wrong(tmp_path: Path) -> None:
    """An error while completing one flush is told, and takes nothing from the others."""
    called: list[str] = []

    def wrong(error: Exception | None) -> None:
        called.append("wrong")
        raise OSError(5, "Input/output error")

    storage = FileStorage(tmp_path / "store", notify=lambda: None)
    store = storage.create_stream("S")
    storage.meta.put("a", b"1")
    storage._completing = True  # or the commit thread may be done with the first before the last
    storage.flush(wrong)

    def note(number: int, error: Exception | None) -> None:
        called.append(f"{number} {error}")

    for number in range(3):
        store.append(b"s", b"", b"x", 1)
        storage.meta.append("a", b"+")
        storage.flush(partial(note, number))
    storage._committer.stop()
    storage._completing = False
    with pytest.raises(OSError, match="Input/output"):
        storage.complete()
    assert called == ["wrong", "0 None", "1 None", "2 None"]
    assert storage.pending_bytes == 0
    assert store.durable_seq == 3
    assert storage.meta._inflight == []
    storage.close()


def test_a_stream_that_cannot_complete_does_not_hold_up_the_metadata(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path / "store", threaded=False)
    store = storage.create_stream("S")
    assert flush(storage) is None

    def broken(part: object) -> None:
        raise OSError(24, "Too many open files")

    store.complete = broken  # type: ignore[method-assign]
    store.append(b"s", b"", b"x", 1)
    storage.meta.put("a", b"1")
    outcome: list[Exception | None] = []
    with pytest.raises(OSError, match="Too many"):
        storage.flush(outcome.append)
    assert outcome == [None]
    storage.meta.put("a", b"2")
    assert flush(storage) is None
    del store.complete
    storage.close()
