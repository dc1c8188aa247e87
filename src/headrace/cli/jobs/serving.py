"""The address of a database, which may have a password: from an option, a file or the environment."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlsplit

import click

from ...jobs.config import Config, load_config
from ...jobs.store import Database, open_database
from ...jobs.store.transfer import Carried, export_to, freeze, import_from, unfreeze
from .. import loop_factory
from ..shared.errors import Failure
from ..shared.output import Output, Table
from ..shared.process import tell_manager
from ..shared.verbs import Declare, run_loop
from .commands import read_secret

__all__ = [
    "ARCHIVE_OPTIONS",
    "DATABASE_OPTIONS",
    "EXPORT",
    "IMPORT",
    "SERVE_OPTIONS",
    "VARIABLE",
    "archive_read_command",
    "configuration",
    "export_command",
    "has_password",
    "import_command",
    "prune_command",
    "serve_command",
    "take_database",
    "unfreeze_command",
]


VARIABLE: Final = "HEADRACE_JOBS_DATABASE"
_SHOWN: Final = (
    "--database shows its password to whoever lists this machine's processes, and a password in it is "
    f"deprecated: use --database-file FILE (- is standard input) or {VARIABLE}, or leave the password "
    "out and give it in PGPASSWORD, or in a file that PGPASSFILE names"
)
_SECRETS: Final = frozenset({"password", "sslpassword"})


def take_database(values: dict[str, Any]) -> list[str]:
    """Put the address that a file or the environment has into ``values``. Returns what is to be said of it.

    Raises Failure for a file that cannot be read or is empty, and for an option beside a file.
    """
    if "database_file" not in values:
        return []
    path, given = values.pop("database_file"), values.get("database")
    if path is not None and given is not None:
        raise Failure("--database-file goes without --database")
    if path is not None:
        values["database"] = read_secret(path, "--database-file")
    elif given is None:
        values["database"] = os.environ.get(VARIABLE) or None
    elif has_password(given):
        return [_SHOWN]
    return []


def has_password(url: str) -> bool:
    """Whether an address says a password, before the host or behind the question mark."""
    try:
        parts = urlsplit(url)
        named = any(name in _SECRETS and value for name, value in parse_qsl(parts.query))
    except ValueError:  # whatever else is wrong with it: this may be one
        return "@" in url
    return bool(parts.password) or named


Args = SimpleNamespace

DATABASE_OPTIONS: Final[tuple[Declare, ...]] = (
    click.option(
        "--config",
        type=click.Path(path_type=Path),
        default=None,
        metavar="FILE",
        help="TOML file with all settings; flags override it",
    ),
    click.option(
        "--database",
        metavar="URL",
        help="sqlite:///path.db or postgresql://… without a password (sqlite:///headrace-jobs.db)",
    ),
    click.option(
        "--database-file",
        type=click.Path(path_type=Path, allow_dash=True),
        default=None,
        metavar="FILE",
        help=f"a file with the address of the database, or - for standard input (or {VARIABLE})",
    ),
)

ARCHIVE_OPTIONS: Final[tuple[Declare, ...]] = (
    click.argument("directory", type=click.Path(path_type=Path)),
    click.option("--message", metavar="ID", help="the message of this id"),
    click.option("--job", metavar="ID", help="the message of this job"),
    click.option("--channel", help="of this channel only"),
)

SERVE_OPTIONS: Final[tuple[Declare, ...]] = (
    click.option("--host", metavar="ADDRESS", help="address to listen on (127.0.0.1)"),
    click.option("--port", type=int, metavar="PORT", help="port to listen on, 0 for any (8080)"),
    *DATABASE_OPTIONS,
    click.option(
        "--allow-network",
        "allow_networks",
        multiple=True,
        metavar="NETWORK",
        help="a non-public network that push may call, such as 127.0.0.0/8; repeatable",
    ),
    click.option(
        "--allow-host",
        "allowed_hosts",
        multiple=True,
        metavar="NAME",
        help="a name under which clients reach the service, beside this machine's own; repeatable",
    ),
    click.option(
        "--insecure",
        flag_value=True,
        default=None,
        help="allow other machines to connect without an admin token",
    ),
)


def configuration(args: Args) -> Config:
    """The settings of the file and the flags, checked."""
    names = ("host", "port", "database", "allow_networks", "allowed_hosts", "insecure")
    given = {name: getattr(args, name, None) for name in names}
    for name in ("allow_networks", "allowed_hosts"):
        given[name] = list(given[name] or ()) or None
    given["admin_token"] = os.environ.get("HEADRACE_JOBS_ADMIN_TOKEN") or None
    given["encryption_keys"] = os.environ.get("HEADRACE_JOBS_ENCRYPTION_KEYS", "").split() or None
    return load_config(
        args.config, {name: value for name, value in given.items() if value is not None}
    )


def serve_command(args: Args) -> int:
    from ...jobs.server import serve

    config = configuration(args)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )

    def ready(url: str) -> None:
        print(f"headrace jobs: listening on {url}", flush=True)
        tell_manager("READY=1", f"STATUS=listening on {url}")

    gc.freeze()
    # Few requests leave cycles: looking for them took a twentieth of the time.
    gc.set_threshold(10_000, 10, 5_000)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        read_again = None if args.config is None else partial(configuration, args)
        runner.run(serve(config, ready, read_again, partial(tell_manager, "STOPPING=1")))
    return 0


def prune_command(args: Args) -> int:
    from ...jobs.server import make_maintenance, make_runtime

    config = configuration(args)

    async def prune() -> dict[str, int]:
        runtime = make_runtime(config)
        await runtime.start()
        try:
            return (await make_maintenance(runtime, config).retain()).rows
        finally:
            await runtime.close()

    rows = run_loop(prune())
    print("removed " + ", ".join(f"{count} {table}" for table, count in sorted(rows.items())))
    return 0


def archive_read_command(args: Args) -> int:
    """Show archived messages, as they were written."""
    from ...jobs.archive import read_archive

    if args.job is None and args.message is None:
        raise Failure("say what to look for: --message ID or --job ID")
    found = list(
        read_archive(args.directory, channel=args.channel, message=args.message, job=args.job)
    )
    form = args.output.form
    Output("json" if form == "text" else form).show(found)
    if not found:
        raise Failure("the archive has no such message or job")
    return 0


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

    return run_loop(carry_out())


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
