"""``headrace completion bash|zsh|fish``."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class

from . import COMPLETE
from .shared.output import Output
from .shared.verbs import offline


@offline(click.argument("shell", type=click.Choice(["bash", "zsh", "fish"])))
def completion(output: Output, shell: str) -> None:
    """Print what makes a shell complete commands, options, and names of streams, consumers, buckets and
    contexts.

    \b
    eval "$(headrace completion bash)"                  in ~/.bashrc
    eval "$(headrace completion zsh)"                   in ~/.zshrc
    headrace completion fish | source                   in ~/.config/fish/config.fish
    """
    from .root import root

    kind = get_completion_class(shell)
    assert kind is not None
    text = kind(root, {}, "headrace", COMPLETE).source()
    output.show({"shell": shell, "script": text}, text)


def complete(instruction: str) -> int:
    """Answer a shell that asks for completions. Returns the exit status."""
    from .root import root

    shell, _, what = instruction.partition("_")
    kind = get_completion_class(shell)
    if kind is None or what not in ("complete", "source"):
        return 1
    asked = kind(root, {}, "headrace", COMPLETE)
    if what == "complete":
        words, begun = asked.get_completion_args()
        if words[:1] == ["serve"]:
            for flag in _flags_of_serve(begun):
                print(asked.format_completion(CompletionItem(flag)))
            return 0
    print(asked.complete() if what == "complete" else asked.source())
    return 0


def _flags_of_serve(begun: str) -> list[str]:
    """Those that begin so, each in its longest spelling; argparse reads them, not click."""
    import argparse

    from .serve.command import add_arguments

    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    longest = (
        max(action.option_strings, key=len)
        for action in parser._actions
        if action.option_strings and action.help != argparse.SUPPRESS
    )
    return sorted(flag for flag in longest if flag.startswith(begun)) if begun else sorted(longest)
