"""``headrace context …``: the files of the ``nats`` tool, read and written."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..documents import read_json
from ..errors import HeadraceError
from .shared.asking import ask, may_go_on
from .shared.connection_options import where
from .shared.errors import Failure
from .shared.output import Output, Sheet, Table, write_private
from .shared.verbs import Declare, connected, offline, run_loop

if TYPE_CHECKING:
    import click


def complete_contexts(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Names of contexts that begin so, for the shell."""
    return [name for name in Contexts().names() if name.startswith(begun)]


class Contexts:
    """The contexts of a user.

    Args:
        environ: says where they are: ``XDG_CONFIG_HOME``, or ``HOME``.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        variables = os.environ if environ is None else environ
        base = variables.get("XDG_CONFIG_HOME", "")
        home = Path(variables.get("HOME", "") or Path.home())
        self._directory = (Path(base) if base else home / ".config") / "nats"
        self._chosen = variables.get("NATS_CONTEXT", "")

    def names(self) -> list[str]:
        """Of all there are."""
        return sorted(path.stem for path in (self._directory / "context").glob("*.json"))

    @property
    def selected(self) -> str:
        """The one that is used when none is named, or ""."""
        try:
            return self._chosen or (self._directory / "context.txt").read_text().strip()
        except OSError:
            return ""  # none was ever selected

    def select(self, name: str) -> None:
        """Use this one from now on; "" is none. Raises Failure."""
        if name:
            self.read(name)
        write_private(self._directory / "context.txt", name)

    def path(self, name: str) -> Path:
        """Its file. Raises Failure for what cannot be a name."""
        if not name or name in (".", "..") or any(c in name for c in "/\\\0"):
            raise Failure(f"{name!r} cannot be the name of a context: it is no file name")
        return self._directory / "context" / f"{name}.json"

    def read(self, name: str) -> dict[str, Any]:
        """What it says. Raises Failure if there is none, or it cannot be read."""
        path = self.path(name)
        try:
            found = read_json(path.read_bytes())
        except FileNotFoundError:
            raise self._missing(name) from None
        except (OSError, ValueError) as error:
            raise Failure(f"{path}: {error}") from None
        if not isinstance(found, dict):
            raise Failure(f"{path}: it is not a JSON object")
        return found

    def _missing(self, name: str) -> Failure:
        known = self.names()
        near = get_close_matches(name, known, 1)
        if near:
            return Failure(f"there is no context {name!r}; did you mean {near[0]!r}?")
        there = f"; there are: {', '.join(known)}" if known else ", nor any other"
        step = f"headrace context create {name} --server nats://HOST    creates it"
        return Failure(f"there is no context {name!r}{there}", step)

    def write(self, name: str, settings: Mapping[str, Any]) -> Path:
        """Keep this. Raises Failure."""
        path = self.path(name)
        write_private(path, json.dumps(settings, indent=2) + "\n")
        return path

    def remove(self, name: str) -> None:
        """Forget it; it is no longer selected then. Raises Failure."""
        self.read(name)
        try:
            self.path(name).unlink()
        except OSError as error:
            raise Failure(f"{self.path(name)}: {error.strerror}") from None
        if self.selected == name:
            self.select("")


_SETTINGS: Final[tuple[Declare, ...]] = (
    click.option("--description", metavar="TEXT", default=None),
    click.option(
        "-s", "--server", "url", metavar="URL", default=None, help="or several, with commas"
    ),
    click.option("--user", metavar="NAME", default=None),
    click.option("--password", metavar="TEXT", default=None),
    click.option("--token", metavar="TEXT", default=None),
    click.option("--creds", metavar="FILE", default=None, help="credentials file"),
    click.option("--nkey", metavar="FILE", default=None, help="file with an NKEY seed"),
    click.option("--tlscert", "cert", metavar="FILE", default=None, help="client certificate"),
    click.option("--tlskey", "key", metavar="FILE", default=None, help="its key"),
    click.option("--tlsca", "ca", metavar="FILE", default=None, help="authority to trust"),
    click.option(
        "--tlsfirst/--no-tlsfirst", "tls_first", default=None, help="TLS before anything else"
    ),
    click.option("--js-domain", "jetstream_domain", metavar="NAME", default=None),
    click.option("--js-api-prefix", "jetstream_api_prefix", metavar="SUBJECT", default=None),
    click.option("--inbox-prefix", "inbox_prefix", metavar="SUBJECT", default=None),
)
_SECRETS: Final = frozenset(("password", "token", "user_jwt"))


_NAME: Final = click.argument("name", shell_complete=complete_contexts)
_PERHAPS: Final = click.argument("name", required=False, shell_complete=complete_contexts)


@offline(click.option("-n", "--names", is_flag=True, help="names alone, one a line"))
def ls(output: Output, names: bool) -> None:
    """List the contexts; * is the one that is used."""
    contexts = Contexts()
    if names:
        output.show(contexts.names(), *contexts.names())
        return
    table = Table(
        ("NAME", "DESCRIPTION", "SERVER"),
        empty="no contexts; `headrace context create NAME --server URL` remembers one",
    )
    rows = []
    for name in contexts.names():
        settings = contexts.read(name)
        is_selected = name == contexts.selected
        url, text = settings.get("url", ""), settings.get("description", "")
        table.add(f"{name}{'*' * is_selected}", text, url)
        rows.append({"name": name, "selected": is_selected, "description": text, "url": url})
    output.show(rows, table)


@offline(
    _NAME,
    *_SETTINGS,
    click.option("-f", "--force", is_flag=True, help="replace one of this name"),
)
def create(output: Output, name: str, force: bool, **settings: Any) -> None:
    """Remember how to connect.

    \b
    headrace context create prod --server nats://nats.example.com --creds ~/prod.creds
    headrace context create local --server nats://127.0.0.1:4222
    """
    contexts = Contexts()
    if name in contexts.names() and not force:
        ask(f"There is a context {name} already. Really replace it?")
    kept = {key: value for key, value in settings.items() if value is not None}
    path = contexts.write(name, kept)
    step = f"headrace context select {name}    uses it by default"
    output.show({"name": name, "file": str(path)}, f"wrote context {name}\n  {step}")


@offline(_NAME, *_SETTINGS)
def edit(output: Output, name: str, **settings: Any) -> None:
    """Change a context: the settings named, or with none the file in an editor.

    An empty value removes a setting: --token ''.
    """
    contexts = Contexts()
    before = contexts.read(name)
    changes = {key: value for key, value in settings.items() if value is not None}
    if changes:
        after = {**before, **changes}
        contexts.write(name, {key: value for key, value in after.items() if value != ""})
    else:
        click.edit(filename=str(contexts.path(name)))
        contexts.read(name)
    output.show({"name": name}, f"changed context {name}")


@offline(_PERHAPS)
def select(output: Output, name: str | None) -> None:
    """Connect so from now on; without NAME, as without contexts."""
    contexts = Contexts()
    contexts.select(name or "")
    text = f"context {name} is used from now on" if name else "no context is used from now on"
    output.show({"selected": name or ""}, text)


@offline(_PERHAPS)
def info(output: Output, name: str | None) -> None:
    """Show a context without its secrets: NAME, or the one that is used."""
    contexts = Contexts()
    name = name or contexts.selected
    if not name:
        raise Failure("no context is selected", "headrace context select NAME    selects one")
    settings = contexts.read(name)
    shown = {
        key: value if key not in _SECRETS or not value else "*****"
        for key, value in settings.items()
    }
    used = ", which is used" if name == contexts.selected else ""
    sheet = Sheet(f"Context {name}{used}")
    sheet.section("", [(key, value) for key, value in shown.items() if value is not False])
    sheet.section("", [("file", contexts.path(name))])
    output.show({"name": name, **shown}, sheet)


@offline(_PERHAPS, click.option("--connect", is_flag=True, help="connect to the server, too"))
def validate(output: Output, name: str | None, connect: bool) -> int:
    """Check that contexts can be used: NAME, or all; the status is 1 if one cannot."""
    table = Table(("CONTEXT", "RESULT"), empty="no contexts")
    rows = []
    for each in [name] if name else Contexts().names():
        problem = _problem(each, connect=connect)
        table.add(each, problem or "fine")
        rows.append({"name": each, "problem": problem})
    output.show(rows, table)
    return 1 if any(row["problem"] for row in rows) else 0


def _problem(name: str, *, connect: bool) -> str:
    async def try_it() -> None:
        async with connected(place, Output()) as session:
            await session.connection.flush()

    try:
        place = where({"context": name})
        if connect:
            run_loop(try_it())
    except (HeadraceError, TimeoutError) as error:
        return str(error)
    return ""


@offline(_NAME, click.argument("new"), *_SETTINGS)
def copy(output: Output, name: str, new: str, **settings: Any) -> None:
    """Begin a context NEW as a copy of another, with the settings named here changed."""
    contexts = Contexts()
    if new in contexts.names():
        raise Failure(f"there is a context {new!r} already")
    changes = {key: value for key, value in settings.items() if value is not None}
    contexts.write(new, {**contexts.read(name), **changes})
    output.show({"name": new}, f"wrote context {new}")


@offline(_NAME, destroys=True)
def rm(output: Output, name: str) -> None:
    """Forget a context."""
    contexts = Contexts()
    contexts.read(name)
    if may_go_on(output, f"forget context {name}"):
        contexts.remove(name)
        output.show({"removed": name}, f"forgot context {name}")
