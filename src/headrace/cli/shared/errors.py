"""What went wrong, as a sentence, what to do next, and the exit status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import click

from ...errors import (
    AuthorizationError,
    ConfigurationError,
    ConnectFailedError,
    HeadraceError,
    JetStreamApiError,
    NoRespondersError,
    RequestTimeoutError,
)

FAILED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3


@dataclass(frozen=True)
class Told:
    """An error for people.

    Attributes:
        text: what is wrong.
        next_steps: commands, each with what it does.
        status: the exit status.
    """

    text: str
    next_steps: tuple[str, ...] = ()
    status: int = FAILED


class Failure(click.ClickException):
    """What was asked cannot be done; the text says why.

    Args:
        text: one sentence.
        next_steps: commands that help, each with what it does.
        status: the exit status.
    """

    def __init__(self, text: str, *next_steps: str, status: int = FAILED) -> None:
        super().__init__(text)
        self.told = Told(text, next_steps, status)


def explain(error: HeadraceError) -> Told:
    """What to tell of an error."""
    text = str(error)
    steps: tuple[str, ...]
    if isinstance(error, AuthorizationError):
        steps = (
            "headrace context ls    shows the contexts there are",
            "--user, --password, --creds and --nkey say who you are",
        )
        return Told(text, steps, UNREACHABLE)
    if isinstance(error, ConnectFailedError):
        steps = (
            "headrace serve -js     runs a broker here",
            "headrace doctor        looks for what is wrong",
            "--server URL, --context NAME or NATS_URL say where the server is",
        )
        return Told(text, steps, UNREACHABLE)
    if isinstance(error, NoRespondersError) and "JetStream" in text:
        return Told(text, ("headrace serve -js     runs a broker with JetStream",))
    if isinstance(error, NoRespondersError) and "no stream has the subject" in text:
        subject = text.rpartition("subject ")[2]
        return Told(text, (f"headrace stream create NAME --subjects {subject}    stores it",))
    if isinstance(error, RequestTimeoutError):
        return Told(text, ("--timeout 30s waits longer",), UNREACHABLE)
    if isinstance(error, ConfigurationError):
        return Told(text, (), USAGE)
    if isinstance(error, JetStreamApiError):
        return Told(text, STEPS.get(error.err_code, ()))
    if isinstance(error, KeyError):  # of a bucket: its text is that of HeadraceError
        kind = "kv" if " key " in text else "object"
        bucket = text.partition("bucket '")[2].partition("'")[0]
        return Told(
            text, (f"headrace {kind} ls {bucket}    lists what is there",) if bucket else ()
        )
    return Told(text)


STEPS: Final = {
    10014: ("headrace consumer ls STREAM    lists the consumers of a stream",),
    10037: ("headrace stream info STREAM    shows the first and the last sequence",),
    10047: ("headrace stream report         shows who uses the storage",),
    10058: ("headrace stream edit STREAM    changes a stream that exists",),
    10059: ("headrace stream ls             lists the streams",),
    10039: ("headrace server info           shows which account this is",),
    10065: (
        "headrace stream ls --subject SUBJECT    names the stream that has it",
        "--subjects, or --config FILE for a backup, gives other ones",
    ),
    10076: ("headrace serve -js -sd DIR     runs a broker with JetStream",),
    10148: ("headrace consumer edit STREAM CONSUMER    changes one that exists",),
}
"""What helps, by JetStream's error code."""
