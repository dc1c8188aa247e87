"""``headrace stream backup`` and ``restore``."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, Final

import click

from ...api.base import to_wire
from ...api.streams import StreamConfig, StreamInfo
from ...client import Backup, read_backup
from ...errors import ConfigurationError, HeadraceError
from ...files import writing
from ...snapshots.archive import Unpacker
from ...snapshots.packing import FilesPacker
from ..shared.asking import may_go_on
from ..shared.configuration import config_file, replaced
from ..shared.errors import Failure
from ..shared.output import progress, telling
from ..shared.units import bytes_text, counted
from ..shared.verbs import Session, online

_CHUNK: Final = 1 << 20


def as_older(directory: Path) -> None:
    """Replace the backup in a directory. Raises SnapshotFormatError, OSError; it is as it was then."""
    backup = read_backup(directory)
    path = directory / "stream.tar.s2"
    unpacker = Unpacker(backup.config.name)
    packer = FilesPacker(backup.about["config"], time.time_ns())
    with path.open("rb") as source, writing(path) as target:
        while chunk := source.read(_CHUNK):
            unpacker.feed(chunk)
            while (found := unpacker.step()) is not None:
                for content in found:
                    target.writelines(packer.add(content))
        unpacker.finish()


_NAMED_MAX = 5


def _whole(directory: Path) -> Backup | None:
    """The backup in a directory, if there is a whole one."""
    try:
        return read_backup(directory)
    except ConfigurationError:
        return None


def _backups_in(place: Path) -> list[Backup]:
    places = sorted(place.iterdir()) if place.is_dir() else []
    return [found for found in map(_whole, places) if found is not None]


@online(
    click.argument("stream", metavar="[STREAM]"),
    click.argument("directory", metavar="DIR", required=False),
    click.option("--all", "everything", is_flag=True, help="every stream, each in DIR/STREAM"),
    click.option(
        "--resume", is_flag=True, help="with --all: leave whole backups in DIR as they are"
    ),
    click.option("--older", is_flag=True, help="in the form of nats-server before 2.15; slow"),
    destroys=True,
)
async def backup(
    session: Session,
    stream: str,
    directory: str | None,
    everything: bool,
    resume: bool,
    older: bool,
) -> int | None:
    """Back up a stream into a directory, or all streams with --all.

    \b
    headrace stream backup ORDERS backups/ORDERS
    headrace stream backup --all backups
    headrace stream backup --all --resume backups    goes on where one was interrupted

    The nats tool can restore it, and so can "headrace stream restore". Whether to replace a backup that is
    there is asked first, unless --force says so; it is replaced once the new one is whole. What was
    interrupted is never taken for a backup.
    """
    if everything == bool(directory):
        raise Failure(
            "give a stream and a directory, or --all and a directory",
            "headrace stream backup STREAM DIR",
            "headrace stream backup --all DIR",
            status=2,
        )
    if not everything:
        target = Path(directory or "")
        if _may_write(session, f"stream {stream} into {target}", _there([target])):
            made = await _back_up(session, stream, target, older=older)
            session.output.show(_document(made), _sentence(made))
        return None
    place, done, failed = Path(stream), [], {}
    names = sorted([name async for name in session.js.stream_names()])
    there = await asyncio.to_thread(_there, [place / name for name in names])
    if resume:
        names = [name for name in names if place / name not in there]
        there = {}
    if not _may_write(session, f"{counted(len(names), 'stream')} into {place}", there):
        return None
    for name in names:
        try:
            made = await _back_up(session, name, place / name, older=older)
        except HeadraceError as error:  # the others are backed up nevertheless
            failed[name] = str(error)
            continue
        done.append(made)
        if session.output.is_text:
            session.output.show({}, _sentence(made))
    shown = {"streams": [_document(made) for made in done], "failed": failed}
    lines = [f"{name}: {error}" for name, error in failed.items()]
    session.output.show(shown, "\n".join([f"backed up {counted(len(done), 'stream')}", *lines]))
    return 1 if failed else None


def _there(places: list[Path]) -> dict[Path, Backup]:
    """The whole backups at these places."""
    found = {place: _whole(place) for place in places}
    return {place: backup for place, backup in found.items() if backup is not None}


def _may_write(session: Session, what: str, there: dict[Path, Backup]) -> bool:
    """Asks whether to replace the backups that are ``there``. Raises Failure if the answer is no."""
    if not there:
        return not session.output.dry_run or may_go_on(session.output, f"back up {what}")
    told = ", ".join(
        f"{place} (stream {each.config.name}, {counted(each.state.messages, 'message')}, up to "
        f"sequence {each.state.last_seq})"
        for place, each in list(there.items())[:_NAMED_MAX]
    )
    more = f" and {len(there) - _NAMED_MAX} more" if len(there) > _NAMED_MAX else ""
    backups = counted(len(there), "backup")
    return may_go_on(session.output, f"back up {what} and replace {backups}: {told}{more}")


async def _back_up(session: Session, name: str, directory: Path, *, older: bool) -> Backup:
    found = await session.js.stream(name)
    state = (await found.info()).state
    with progress(session.output, name, state.bytes, of_bytes=True) as advance:
        made = await found.backup(directory, progress=telling(advance))
    if older:
        await asyncio.to_thread(as_older, directory)
        made = await asyncio.to_thread(read_backup, directory)
    return made


def _document(made: Backup) -> dict[str, Any]:
    return {
        "stream": made.config.name,
        "directory": str(made.directory),
        "bytes": made.nbytes,
        "state": to_wire(made.state),
    }


def _sentence(made: Backup) -> str:
    return (
        f"backed up stream {made.config.name} with {counted(made.state.messages, 'message')} "
        f"into {made.directory} ({bytes_text(made.nbytes)})"
    )


@online(
    click.argument("directory", metavar="DIR"),
    click.option("--name", metavar="STREAM", default="", help="another name for the stream"),
    click.option(
        "--config",
        "file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        default=None,
        help="the configuration to restore it with, in JSON",
    ),
    click.option("--replicas", type=click.IntRange(1, 5), default=None, help="how many copies"),
    click.option(
        "--all", "everything", is_flag=True, help="every backup in the directories of DIR"
    ),
    click.option("--resume", is_flag=True, help="with --all: leave streams that exist as they are"),
)
async def restore(
    session: Session,
    directory: str,
    name: str,
    file: Path | None,
    replicas: int | None,
    everything: bool,
    resume: bool,
) -> int | None:
    """Make a stream of a backup, ours or the nats tool's: all of it or nothing.

    \b
    headrace stream restore backups/ORDERS
    headrace stream restore backups/ORDERS --context cluster --replicas 3
    headrace stream restore --all backups

    Messages have the sequences and times they had; consumers go on where they were.
    """
    place = Path(directory)
    if not everything:
        try:
            found = await asyncio.to_thread(read_backup, place)
        except ConfigurationError as error:
            if not (many := await asyncio.to_thread(_backups_in, place)):
                raise
            raise Failure(
                f"{place} holds the backups of {counted(len(many), 'stream')}, and is none itself",
                f"headrace stream restore --all {place}    restores them all",
                f"headrace stream restore {place}/STREAM    restores one",
            ) from error
        info = await _restore(session, found, _changed(found, name, file, replicas))
        session.output.show(_restored(info), _restored_sentence(info))
        return None
    if name or file:
        raise Failure("--name and --config are for one stream, not with --all", status=2)
    backups = await asyncio.to_thread(_backups_in, place)
    if not backups:
        raise Failure(f"no directory of {place} holds a backup", "headrace stream backup --all DIR")
    there = {each async for each in session.js.stream_names()} if resume else set()
    done: list[dict[str, Any]] = []
    failed = {}
    for found in backups:
        if found.config.name in there:
            continue
        try:
            info = await _restore(session, found, _changed(found, "", None, replicas))
        except HeadraceError as error:  # the others are restored nevertheless
            failed[found.config.name] = str(error)
            continue
        done.append(_restored(info))
        if session.output.is_text:
            session.output.show({}, _restored_sentence(info))
    lines = [f"{each}: {error}" for each, error in failed.items()]
    shown = {"streams": done, "failed": failed}
    session.output.show(shown, "\n".join([f"restored {counted(len(done), 'stream')}", *lines]))
    return 1 if failed else None


def _restored(info: StreamInfo) -> dict[str, Any]:
    return {"stream": info.config.name, "state": to_wire(info.state)}


def _restored_sentence(info: StreamInfo) -> str:
    state = info.state
    return (
        f"restored stream {info.config.name} with {counted(state.messages, 'message')}, "
        f"sequences {state.first_seq} to {state.last_seq}"
    )


def _changed(
    found: Backup, name: str, file: Path | None, replicas: int | None
) -> StreamConfig | None:
    """The configuration to restore with, if it is not the backup's own."""
    changes: dict[str, Any] = {}
    if name:
        changes["name"] = name
    if replicas:
        changes["num_replicas"] = replicas
    if file is None and not changes:
        return None
    config = config_file(file, StreamConfig) if file else found.config
    return replaced(config, changes)


async def _restore(session: Session, found: Backup, config: StreamConfig | None) -> StreamInfo:
    label = found.config.name if config is None else config.name
    with progress(session.output, label, found.nbytes, of_bytes=True) as advance:
        stream = await session.js.restore_stream(
            found.directory, config=config, progress=telling(advance)
        )
    info = stream.cached_info
    assert info is not None  # the answer to the restore
    return info
