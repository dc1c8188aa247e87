"""``headrace group prompt``: one command after the other, as the ``cg`` tool asks for them."""

from __future__ import annotations

import shlex
import sys

import click

from ..root import run_below
from ..shared.connection_options import connection_options
from ..shared.output import output_options
from ..shared.typed import read_line
from .command import group

_ENDS = ("exit", "quit")


@click.pass_context
def _prompt(context: click.Context, /, **_options: object) -> int:
    status = 0
    while line := read_line("group> "):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            print(f"headrace group prompt: {error}", file=sys.stderr)
            status = 2
            continue
        if words and words[0] in _ENDS:
            break
        if not words:
            continue
        try:
            status = run_below(group, ">", words, parent=context)
        except KeyboardInterrupt:  # it ends the command that runs, and not the prompt
            print(file=sys.stderr)
        sys.stdout.flush()
    return status


prompt = click.Command(
    "prompt",
    callback=_prompt,
    params=[*output_options(), *connection_options()],
    help="Type commands of `headrace group` one after the other, such as `elastic ls ORDERS`. The options "
    "given here hold for each of them. It ends at `exit` or at the end of the input, with the status of the "
    "last command.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
