"""Tokens come from a file or the environment: an argument shows them to all who list processes."""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import click

from ...jobs.client import JobsClient, JobsError
from ..shared.asking import ask
from ..shared.errors import UNREACHABLE, Failure
from ..shared.output import Output, Table
from ..shared.units import DURATION
from ..shared.verbs import Declare

__all__ = [
    "CHANNEL_TOKEN",
    "PRODUCER_TOKEN",
    "TOKEN",
    "read_secret",
    "take_tokens",
    "token_option",
    "trusted",
]


_BYTES_MAX: Final = 64 * 1024
_FROM: Final = {
    "token": "HEADRACE_JOBS_TOKEN",
    "channel_token": "HEADRACE_JOBS_CHANNEL_TOKEN",
    "producer_token": "HEADRACE_JOBS_PRODUCER_TOKEN",
}


def token_option(name: str, text: str) -> Declare:
    """``--NAME-file``: what is typed is seen by all who list processes."""
    return click.option(
        f"--{name.replace('_', '-')}-file",
        type=click.Path(path_type=Path, allow_dash=True),
        metavar="FILE",
        help=f"{text}: a file, or - for standard input (or {_FROM[name]})",
    )


TOKEN: Final = token_option("token", "the consumer's token")
CHANNEL_TOKEN: Final = token_option("channel_token", "the channel's token")
PRODUCER_TOKEN: Final = token_option("producer_token", "the producer's token")


def take_tokens(values: dict[str, Any]) -> None:
    """Put into ``values`` the tokens that files and the environment have.

    Raises Failure for a file that cannot be read or is empty, and for standard input as two of them.
    """
    dashes = [name for name in _FROM if str(values.get(f"{name}_file")) == "-"]
    if len(dashes) + (values.get("payload") == "-") > 1:
        raise Failure("standard input is read once: only one of payload and tokens is `-`")
    for name, variable in _FROM.items():
        if f"{name}_file" in values:
            path = values.pop(f"{name}_file")
            option = f"--{name.replace('_', '-')}-file"
            given = read_secret(path, option) if path is not None else os.environ.get(variable)
            values[name] = given or None


def read_secret(path: Path, option: str) -> str:
    """What a file, or standard input, has for ``option``, without the ends of lines around it.

    Raises Failure, which says what is wrong with the file and nothing of what is in it.
    """
    try:
        if str(path) == "-":
            raw = sys.stdin.buffer.read(_BYTES_MAX)
        else:
            with path.open("rb") as file:
                raw = file.read(_BYTES_MAX)
        text = raw.decode()
    except OSError as error:
        raise Failure(f"{option} {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Failure(f"{option} {path}: this is no text") from None
    secret = text.strip("\r\n")
    if not secret:
        raise Failure(f"{option} {path}: there is nothing in it")
    return secret


def trusted(url: str) -> ssl.SSLContext | None:
    """Whom to trust at an https URL: the authorities in the file of HEADRACE_JOBS_CA_FILE, if given."""
    path = os.environ.get("HEADRACE_JOBS_CA_FILE")
    if not path or not url.lower().startswith("https:"):
        return None
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:  # ssl.SSLError is one
        raise Failure(f"HEADRACE_JOBS_CA_FILE {path}: {error}; accepted is a PEM file") from None


Args = SimpleNamespace
"""What was typed: ``url``, ``output``, ``json`` (whether a program reads it), and what the verb takes."""

Call = Callable[[JobsClient, Args], Any]

_MISSING: Final = 404
URL: Final = "http://127.0.0.1:8080"


def speak(carry_out: Call, args: Args) -> int:
    """Ask the service, and show the answer."""
    admin_token = os.environ.get("HEADRACE_JOBS_ADMIN_TOKEN")
    with JobsClient(args.url, admin_token=admin_token, tls=trusted(args.url)) as client:
        try:
            answer = carry_out(client, args)
        except JobsError as error:
            if error.status:
                raise
            steps = (
                "headrace jobs serve    runs the service",
                "--url, or HEADRACE_JOBS_URL, says where it is",
            )
            raise Failure(f"{args.url}: {error}", *steps, status=UNREACHABLE) from error
    if answer is None:
        return 0  # it was a dry run, and said what it would do
    if isinstance(answer, str | Table):
        args.output.show(answer, answer)
    elif isinstance(answer, list):
        args.output.show(answer, *map(str, answer))
    else:
        form = args.output.form
        Output("json" if form == "text" else form).show(answer)
    return 0


def _status(client: JobsClient, args: Args) -> Any:
    status = client.status()
    if args.json:
        return status
    numbers = ("QUEUED", "INFLIGHT", "DELIVERED", "DEAD")
    table = Table(
        ("CONSUMER", "TYPE", *numbers, "STATE"),
        right=frozenset(numbers),
        empty="no consumers; `headrace jobs consumer CHANNEL NAME` creates one",
    )
    for one in status["consumers"]:
        disabled = f"disabled: {one['disabled_reason']}" if one["disabled_reason"] else ""
        left = "not in the configuration any more" if one["left_configuration"] else ""
        state = " ".join(filter(None, ("paused" if one["paused"] else "", disabled, left)))
        counts = (one["jobs"][each] for each in numbers)
        table.add(f"{one['channel']}/{one['consumer']}", one["type"], *counts, state)
    return table


def _put_channel(client: JobsClient, args: Args) -> Any:
    if args.events_to:
        client.channel(args.events_to)  # before anything is made
    answer = client.put_channel(args.channel, token=args.token, name=args.name)
    if args.events_to is not None:
        client.set_events_channel(args.channel, args.events_to or None)
    return answer


def _put_consumer(client: JobsClient, args: Args) -> Any:
    if args.max_retries is not None and not args.force:
        _ask_about_dying(client, args)
    return client.put_consumer(
        args.channel,
        args.consumer,
        token=args.token,
        name=args.name,
        kind=args.type,
        callback_url=args.callback_url,
        max_retries=args.max_retries,
    )


def _ask_about_dying(client: JobsClient, args: Args) -> None:
    try:
        would = client.patch_consumer(
            args.channel, args.consumer, max_retries=args.max_retries, dry_run=True
        )
    except JobsError as error:
        if error.status == _MISSING:
            return
        raise
    if would["dying"]:
        ask(
            f"With {args.max_retries} instead of {would['max_retries']} retries, the next failure of "
            f"{would['dying']} unfinished jobs of {args.channel}/{args.consumer} is their last. Change it?"
        )


def _token(client: JobsClient, args: Args) -> Any:
    if args.only and args.token is None:
        raise Failure("--only needs --token-file: without it nobody would know the only token")
    token = client.rotate_token(
        args.channel, args.consumer, token=args.token, keep_previous=not args.only
    )
    kept = "no other is accepted" if args.only else "the one before is accepted, too"
    return {"token": token} if args.json else f"{token}\n{kept}"


def _secret(client: JobsClient, args: Args) -> Any:
    secret = client.rotate_secret(args.channel, args.consumer, keep_previous=not args.only)
    kept = "no other signs" if args.only else "the one before signs, too, until the next one"
    return {"secret": secret} if args.json else f"{secret}\n{kept}"


def _sign(client: JobsClient, args: Args) -> Any:
    answer = client.patch_consumer(args.channel, args.consumer, settings={"sign": not args.off})
    how = "are not signed" if args.off else "are signed"
    return answer if args.json else f"{args.channel}/{args.consumer}: calls {how}"


def _publish(client: JobsClient, args: Args) -> Any:
    payload = sys.stdin.buffer.read() if args.payload == "-" else args.payload.encode()
    unique = {
        "by": args.unique_by,
        "within": args.unique_within,
        "while": args.unique_while or None,
    }
    if not args.unique_by and (args.unique_within or args.unique_while):
        raise Failure("--unique-within and --unique-while go with --unique-by")
    return client.publish(
        args.channel,
        payload,
        channel_token=args.channel_token or "",
        producer=args.producer or "",
        producer_token=args.producer_token or "",
        content_type=args.content_type,
        message_id=args.id,
        priority=args.priority,
        subject=args.subject,
        scheduled_for=args.at,
        unique=unique if args.unique_by else None,
    )


def _change(client: JobsClient, args: Args, **change: Any) -> Any:
    answer = client.patch_consumer(args.channel, args.consumer, **change)
    return answer if args.json else f"{args.channel}/{args.consumer}: changed"


def _events(client: JobsClient, args: Args) -> Any:
    found = client.events()
    if args.json:
        return found
    return [
        f"{one['at']} {one['kind']} {one['channel']}/{one['consumer']}: {one['detail']}"
        for one in found
    ]


CHANNEL: Final = click.argument("channel")
_CONSUMER: Final = click.argument("consumer")
_NAMED: Final[tuple[Declare, ...]] = (
    token_option("token", "its token; kept, or made for a new one, when not given"),
    click.option("--name"),
)

STATES: Final = ("QUEUED", "INFLIGHT", "DELIVERED", "DEAD")
ONE: Final = (CHANNEL, _CONSUMER)
_KEPT: Final[tuple[Declare, ...]] = (
    click.option("--type", type=click.Choice(["push", "pull"])),
    click.option("--callback-url"),
    click.option("--max-retries", type=int),
    click.option("-f", "--force", is_flag=True, help="do not ask what dies of fewer retries"),
)
_MESSAGE: Final[tuple[Declare, ...]] = (
    click.argument("payload"),
    CHANNEL_TOKEN,
    click.option("--producer", help="who publishes; with an API key it may be left out"),
    PRODUCER_TOKEN,
    click.option("--content-type", default="application/octet-stream"),
    click.option("--id", help="a message id, unique in the channel"),
    click.option("--priority", type=int, default=0),
    click.option("--subject", help="what it is about, such as orders.eu.paid; filters go by it"),
    click.option("--at", help="when to dispatch, RFC 3339"),
    click.option(
        "--unique-by",
        multiple=True,
        metavar="PART",
        help="once for each subject, payload, payload:$.user.id, ordering_key; repeatable",
    ),
    click.option("--unique-within", type=DURATION, help="and so long, such as 1h"),
    click.option(
        "--unique-while",
        multiple=True,
        type=click.Choice(STATES, case_sensitive=False),
        help="and while the first has a job in this state; repeatable",
    ),
)
# fmt: off
REMOTE: Final[tuple[tuple[str, str, Call, tuple[Declare, ...]], ...]] = (
    ("status", "counts of every consumer", _status, ()),
    ("events", "the newest events of the service", _events, ()),
    ("channel", "create or change a channel", _put_channel, (CHANNEL, *_NAMED,
        click.option("--events-to", metavar="CHANNEL", help="tell this channel of jobs that fail, "
                     "recover or die, and of consumers that are disabled; '' ends that"))),
    ("producer", "create or change a producer",
        lambda c, a: c.put_producer(a.producer, token=a.token, name=a.name),
        (click.argument("producer"), *_NAMED)),
    ("consumer", "create or change a consumer", _put_consumer, (*ONE, *_NAMED, *_KEPT)),
    ("token", "give a consumer another token; the one before is accepted, too", _token,
        (*ONE, token_option("token", "this one; a new one is made and shown when not given"),
         click.option("--only", is_flag=True, help="accept no other from now on"))),
    ("secret", "make a new signing secret for a consumer, and show it once", _secret,
        (*ONE, click.option("--only", is_flag=True, help="let no other sign from now on"))),
    ("sign", "sign the calls of a consumer's endpoint, or not", _sign,
        (*ONE, click.option("--off", is_flag=True, help="do not"))),
    ("publish", "broadcast a message", _publish, (CHANNEL, *_MESSAGE)),
    ("pause", "stop handing out jobs", lambda c, a: _change(c, a, paused=True), ONE),
    ("resume", "hand out jobs again", lambda c, a: _change(c, a, paused=False), ONE),
    ("enable", "call a disabled endpoint again", lambda c, a: _change(c, a, enable=True), ONE),
)
# fmt: on
