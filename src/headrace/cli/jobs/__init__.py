"""Deliver jobs over HTTP: run the service, define channels and consumers, manage dead letters.

`headrace jobs serve` runs the service. The other commands connect to a running one: `--url` (or
`HEADRACE_JOBS_URL`) is its URL, `HEADRACE_JOBS_ADMIN_TOKEN` its admin token, or an API key,
`HEADRACE_JOBS_CA_FILE` a file with the authorities to trust at an `https` URL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ...errors import HeadraceError
from ..commands import CommandEntry
from ..shared.errors import Failure
from ..shared.output import output_options
from ..shared.verbs import Declare, LazyGroup, command_of, output_above

if TYPE_CHECKING:
    from .commands import Args


class _Jobs(LazyGroup):
    """Its verbs need the extra ``jobs``, and are made when one is used."""

    connection = (
        "Every command but serve, prune, archive, export, import and unfreeze takes --url (or "
        "HEADRACE_JOBS_URL), the service's address, and honours HEADRACE_JOBS_ADMIN_TOKEN. "
        "They speak HTTP, and take no --server."
    )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _commands().get(cmd_name)


def _on_the_database() -> dict[str, click.Command]:
    """The commands that need no running service."""
    from . import serving

    made = {
        "serve": _verb(
            "serve",
            "run the service",
            serving.serve_command,
            serving.SERVE_OPTIONS,
            output=False,
        ),
        "prune": _verb(
            "prune",
            "archive and remove expired messages once, beside a running service",
            serving.prune_command,
            serving.DATABASE_OPTIONS,
            output=False,
        ),
    }
    for name, text, carried, declare in (
        ("export", "write all of a database into a file", serving.export_command, serving.EXPORT),
        (
            "import",
            "store all of a file in an empty database",
            serving.import_command,
            serving.IMPORT,
        ),
        ("unfreeze", "let an exported database take changes again", serving.unfreeze_command, ()),
    ):
        options = (*declare, *serving.DATABASE_OPTIONS)
        made[name] = _verb(name, text, carried, options, output=name != "unfreeze")
    made["archive"] = click.Group(
        "archive",
        help="Look into what retention archived; needs no running service.",
        commands=[
            _verb(
                "read",
                "show a message with its jobs, attempts and reasons, by its id or by a job's",
                serving.archive_read_command,
                serving.ARCHIVE_OPTIONS,
            )
        ],
    )
    return made


def _commands() -> dict[str, click.Command]:
    from . import commands, definitions, finding

    made = _on_the_database()
    url = click.option(
        "--url",
        envvar="HEADRACE_JOBS_URL",
        default=commands.URL,
        help=f"the service (HEADRACE_JOBS_URL, or {commands.URL})",
    )
    destroying = {"purge", "cancel", "replay", *(name for name, *_ in definitions.DESTROYING)}
    for name, text, call, declare in (
        *commands.REMOTE,
        *finding.FINDING,
        *definitions.DEFINING,
        *definitions.DESTROYING,
    ):

        def ask(args: Args, call: commands.Call = call) -> int:
            return commands.speak(call, args)

        made[name] = _verb(name, text, ask, (*declare, url), destroys=name in destroying)
    return made


def _verb(
    name: str,
    text: str,
    carried: Callable[[Args], int],
    declare: tuple[Declare, ...],
    *,
    output: bool = True,
    destroys: bool = False,
) -> click.Command:
    @click.pass_context
    def callback(context: click.Context, /, **values: Any) -> int:
        from .commands import Args, take_tokens
        from .serving import take_database

        asked = output_above(context)
        own = {key: value for key, value in values.items() if key not in ("json", "yaml")}
        take_tokens(own)
        for sentence in take_database(own):
            asked.note(sentence)
        try:
            return carried(Args(output=asked, json=not asked.is_text, **own))
        except HeadraceError as error:
            raise Failure(str(error)) from error

    command = command_of(
        carried, callback, name, declare, output_options() if output else [], destroys
    )
    command.help = text
    return command


jobs = _Jobs(
    "jobs",
    {
        "serve": CommandEntry("run the service", "-"),
        "prune": CommandEntry(
            "archive and remove expired messages once, beside a running service", "-"
        ),
        "archive": CommandEntry("find an archived message by its id or by a job's", "-"),
        "export": CommandEntry("write all of a database into a file", "-"),
        "import": CommandEntry("store all of a file in an empty database", "-"),
        "unfreeze": CommandEntry("let an exported database take changes again", "-"),
        "status": CommandEntry("counts of every consumer", "-"),
        "events": CommandEntry("the newest events of the service", "-"),
        "channel": CommandEntry("create or change a channel", "-"),
        "producer": CommandEntry("create or change a producer", "-"),
        "consumer": CommandEntry("create or change a consumer", "-"),
        "token": CommandEntry("give a consumer another token", "-"),
        "secret": CommandEntry("make a new signing secret for a consumer", "-"),
        "sign": CommandEntry("sign the calls of a consumer's endpoint, or not", "-"),
        "filter": CommandEntry("which messages a consumer gets: shown, or set", "-"),
        "feed": CommandEntry(
            "up to where feeds are in their streams; make jobs again from there", "-"
        ),
        "schedule": CommandEntry("publish a message again and again, by cron", "-"),
        "schedules": CommandEntry("what a channel publishes again and again", "-"),
        "unschedule": CommandEntry("delete a schedule", "-"),
        "key": CommandEntry("make an API key with scopes, for channels", "-"),
        "keys": CommandEntry("the API keys, with their last use", "-"),
        "revoke": CommandEntry("revoke an API key", "-"),
        "audit": CommandEntry("who changed what, from where, with which result", "-"),
        "drain": CommandEntry("let a channel take no more messages", "-"),
        "delete-channel": CommandEntry("delete a channel with what hangs on it", "-"),
        "delete-producer": CommandEntry("delete a producer", "-"),
        "delete-consumer": CommandEntry("delete a consumer, or move its jobs to another one", "-"),
        "publish": CommandEntry("broadcast a message", "-"),
        "pause": CommandEntry("stop handing out jobs", "-"),
        "resume": CommandEntry("hand out jobs again", "-"),
        "enable": CommandEntry("call a disabled endpoint again", "-"),
        "find": CommandEntry("jobs of a message, a consumer, in a state, of an age", "-"),
        "calls": CommandEntry("how a push consumer's endpoint answers", "-"),
        "cancel": CommandEntry("cancel a job, or all that match", "-"),
        "replay": CommandEntry("hand out delivered and dead jobs again", "-"),
        "job": CommandEntry("a job with its attempts", "-"),
        "dead": CommandEntry("dead jobs with their last error", "-"),
        "requeue": CommandEntry("requeue all dead jobs", "-"),
        "purge": CommandEntry("delete all dead jobs", "-"),
    },
    "Deliver jobs over HTTP: run the service, define channels and consumers, manage dead letters.",
)
