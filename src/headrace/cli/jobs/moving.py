"""``headrace jobs export``, ``import``, ``unfreeze``: all of a database into a file, and another one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Final, TypeVar

import click

from ...jobs.store import Database, open_database
from ...jobs.store.transfer import Carried, export_to, freeze, import_from, unfreeze
from ..shared.output import Table
from ..shared.verbs import Declare
from .serving import configuration

__all__ = ["EXPORT", "IMPORT", "export_command", "import_command", "unfreeze_command"]

Args = SimpleNamespace
T = TypeVar("T")

_FILE: Final = click.argument("file", type=click.Path(path_type=Path))
EXPORT: Final[tuple[Declare, ...]] = (
    _FILE,
    click.option(
        "--keep-writable",
        is_flag=True,
        help="let the service go on; what it changes from now on is not in the file",
    ),
)
IMPORT: Final[tuple[Declare, ...]] = (_FILE,)


def _on(args: Args, work: Callable[[Database], Awaitable[T]]) -> T:
    config = configuration(args)

    async def carry_out() -> T:
        database = open_database(config.database, threads=2)
        await database.start()
        try:
            return await work(database)
        finally:
            await database.close()

    return asyncio.run(carry_out())


def _show(args: Args, carried: Carried, *said: str) -> int:
    table = Table(("TABLE", "ROWS"), right=frozenset(("ROWS",)))
    for name, count in carried.rows.items():
        table.add(name, count)
    for name, count in sorted(carried.states.items()):
        table.add(f"jobs {name}", count)
    args.output.show({"rows": dict(carried.rows), "jobs": dict(carried.states)}, table, *said)
    return 0


def export_command(args: Args) -> int:
    """Make the database read-only, and write all of it into a file."""

    async def carry_out(database: Database) -> Carried:
        if not args.keep_writable:
            await freeze(database)
        try:
            return await export_to(database, args.file)
        except BaseException:
            if not args.keep_writable:
                await unfreeze(
                    database
                )  # there is no file for which it would have to stay as it is
            raise

    carried = _on(args, carry_out)
    if args.keep_writable:
        return _show(args, carried, "the database goes on taking changes: they are not in the file")
    return _show(
        args, carried, "the database is read-only from now on; `headrace jobs unfreeze` ends that"
    )


def import_command(args: Args) -> int:
    """Store all of a file in an empty database, or nothing."""
    carried = _on(args, lambda database: import_from(database, args.file))
    return _show(args, carried, "stored are as many as were exported")


def unfreeze_command(args: Args) -> int:
    """Let a database that was exported take changes again."""
    _on(args, unfreeze)
    print("the database takes changes again")
    return 0
