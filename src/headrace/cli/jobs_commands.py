"""The sub-commands of ``headrace jobs``."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ..errors import ConfigurationError
from ..jobs.client import JobsClient
from ..jobs.config import Config, load_config
from . import loop_factory

_Call = Callable[[JobsClient, argparse.Namespace], Any]

_URL: Final = "http://127.0.0.1:8080"
_SERVE_FLAGS: Final[tuple[tuple[str, type, str], ...]] = (
    ("host", str, "address to listen on (default 127.0.0.1)"),
    ("port", int, "port to listen on, 0 for any (default 8080)"),
    ("database", str, "sqlite:///path.db or postgresql://… (default sqlite:///headrace-jobs.db)"),
    ("database_threads", int, "connections to PostgreSQL (default 8)"),
    ("max_retries", int, "retries of new consumers (default 5)"),
    ("rational_delay_seconds", float, "added to the time limit of a pull job (default 2)"),
    ("connection_timeout_seconds", float, "time limit of a push call or a pull job (default 30)"),
    ("schedule_min_delay_seconds", float, "minimum delay of scheduled messages (default 120)"),
    ("payload_bytes_max", int, "largest payload (default 1048576)"),
    ("drain_seconds", float, "time to finish work in progress when stopped (default 15)"),
    ("keep_messages_days", float, "age at which finished messages are removed (default: never)"),
    ("keep_dead_days", float, "age at which dead letters are removed with them (default: never)"),
    ("archive_directory", str, "where removed messages are kept as JSON lines (default: nowhere)"),
)


def add_commands(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands on ``parser``."""
    commands = parser.add_subparsers(required=True, metavar="<command>")
    _add_serve(commands)
    _add_prune(commands)
    for name, help_text, carry_out, arguments in _REMOTE:
        command = commands.add_parser(name, help=help_text, allow_abbrev=False)
        command.add_argument(
            "--url",
            default=os.environ.get("HEADRACE_JOBS_URL", _URL),
            help=f"the service (default: HEADRACE_JOBS_URL or {_URL})",
        )
        command.add_argument("--json", action="store_true", help="print the answer as JSON")
        for flag, options in arguments:
            command.add_argument(flag, **options)
        command.set_defaults(carry_out=_speaking(carry_out))


def _add_serve(commands: Any) -> None:
    serve = commands.add_parser("serve", help="run the service", allow_abbrev=False)
    _add_config_flags(serve)
    serve.add_argument(
        "--allow-network",
        dest="allow_networks",
        action="append",
        metavar="NETWORK",
        help="a non-public network that push may call, such as 127.0.0.0/8; repeatable",
    )
    serve.add_argument(
        "--https-only", action="store_const", const=True, help="push to https URLs only"
    )
    serve.add_argument(
        "--no-push", dest="push", action="store_const", const=False, help="never push"
    )
    serve.add_argument(
        "--insecure",
        action="store_const",
        const=True,
        help="allow other machines to connect without an admin token",
    )
    serve.set_defaults(carry_out=_serve)


def _add_prune(commands: Any) -> None:
    prune = commands.add_parser(
        "prune",
        help="archive and remove expired messages once, beside a running service",
        allow_abbrev=False,
    )
    _add_config_flags(prune)
    prune.set_defaults(carry_out=_prune)


def _add_config_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file; flags override it")
    for name, kind, help_text in _SERVE_FLAGS:
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=kind, help=help_text, metavar="VALUE"
        )


def _config(args: argparse.Namespace) -> Config:
    names = [name for name, _, _ in _SERVE_FLAGS]
    names += ["allow_networks", "https_only", "push", "insecure"]
    given = {name: getattr(args, name, None) for name in names}
    given["admin_token"] = os.environ.get("HEADRACE_JOBS_ADMIN_TOKEN") or None
    return load_config(
        args.config, {name: value for name, value in given.items() if value is not None}
    )


def _serve(args: argparse.Namespace) -> int:
    from ..jobs.server import serve

    config = _config(args)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )

    def ready(url: str) -> None:
        print(f"headrace jobs: listening on {url}", flush=True)

    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(serve(config, ready))
    except OSError as error:
        raise ConfigurationError(
            f"{config.host}:{config.port}: {error.strerror or error}"
        ) from None
    return 0


def _prune(args: argparse.Namespace) -> int:
    from ..jobs.server import make_maintenance, make_runtime

    config = _config(args)

    async def prune() -> dict[str, int]:
        runtime = make_runtime(config)
        await runtime.start()
        try:
            return (await make_maintenance(runtime, config).retain()).rows
        finally:
            await runtime.close()

    rows = asyncio.run(prune())
    print("removed " + ", ".join(f"{count} {table}" for table, count in sorted(rows.items())))
    return 0


def _speaking(carry_out: _Call) -> Callable[[argparse.Namespace], int]:
    def speak(args: argparse.Namespace) -> int:
        admin_token = os.environ.get("HEADRACE_JOBS_ADMIN_TOKEN")
        with JobsClient(args.url, admin_token=admin_token) as client:
            _show(carry_out(client, args), as_json=args.json)
        return 0

    return speak


def _show(answer: Any, *, as_json: bool) -> None:
    if as_json or not isinstance(answer, list | str):
        print(json.dumps(answer, indent=2, ensure_ascii=False))
    elif isinstance(answer, str):
        print(answer)
    else:
        for line in answer:
            print(line)


def _status(client: JobsClient, args: argparse.Namespace) -> Any:
    status = client.status()
    if args.json:
        return status
    lines = [
        f"{'CONSUMER':40} {'TYPE':5} {'QUEUED':>9} {'INFLIGHT':>9} {'DELIVERED':>10} {'DEAD':>7}"
    ]
    for one in status["consumers"]:
        counts = one["jobs"]
        note = " paused" if one["paused"] else ""
        note += f" disabled: {one['disabled_reason']}" if one["disabled_reason"] else ""
        lines.append(
            f"{one['channel'] + '/' + one['consumer']:40} {one['type']:5} {counts['QUEUED']:9} "
            f"{counts['INFLIGHT']:9} {counts['DELIVERED']:10} {counts['DEAD']:7}{note}"
        )
    return lines


def _put_consumer(client: JobsClient, args: argparse.Namespace) -> Any:
    return client.put_consumer(
        args.channel,
        args.consumer,
        token=args.token,
        name=args.name,
        kind=args.type,
        callback_url=args.callback_url,
        max_retries=args.max_retries,
    )


def _publish(client: JobsClient, args: argparse.Namespace) -> Any:
    payload = sys.stdin.buffer.read() if args.payload == "-" else args.payload.encode()
    return client.publish(
        args.channel,
        payload,
        channel_token=args.channel_token,
        producer=args.producer,
        producer_token=args.producer_token,
        content_type=args.content_type,
        message_id=args.id,
        priority=args.priority,
        scheduled_for=args.at,
    )


def _change(client: JobsClient, args: argparse.Namespace, **change: Any) -> Any:
    answer = client.patch_consumer(args.channel, args.consumer, **change)
    return answer if args.json else f"{args.channel}/{args.consumer}: changed"


def _dead(client: JobsClient, args: argparse.Namespace) -> Any:
    found = list(client.dead_jobs(args.channel, args.consumer))
    if args.json:
        return found
    return [
        f"{job['JobRequeueURL'].split('/')[-2]:>12} {job['StatusChangedAt']:30} {job['LastError']}"
        for job in found
    ] or ["no dead jobs"]


def _requeue(client: JobsClient, args: argparse.Namespace) -> Any:
    client.requeue_dead(args.channel, args.consumer, consumer_token=args.token)
    return "requeued"


def _purge(client: JobsClient, args: argparse.Namespace) -> Any:
    count = client.purge_dead(
        args.channel, args.consumer, channel_token=args.channel_token, consumer_token=args.token
    )
    return f"{count} deleted"


def _events(client: JobsClient, args: argparse.Namespace) -> Any:
    found = client.events()
    if args.json:
        return found
    return [
        f"{one['at']} {one['kind']} {one['channel']}/{one['consumer']}: {one['detail']}"
        for one in found
    ]


_Argument = tuple[str, dict[str, Any]]
_CHANNEL: Final[_Argument] = ("channel", {})
_CONSUMER: Final[_Argument] = ("consumer", {})
_NAMED: Final[tuple[_Argument, ...]] = (
    ("--token", {"help": "kept, or made for a new one, when not given"}),
    ("--name", {}),
)

_ONE: Final = (_CHANNEL, _CONSUMER)
_KEPT: Final[tuple[_Argument, ...]] = (
    ("--type", {"choices": ("push", "pull")}),
    ("--callback-url", {}),
    ("--max-retries", {"type": int}),
)
_MESSAGE: Final[tuple[_Argument, ...]] = (
    ("payload", {"help": "the payload, or - for standard input"}),
    ("--channel-token", {"required": True}),
    ("--producer", {"required": True}),
    ("--producer-token", {"required": True}),
    ("--content-type", {"default": "application/octet-stream"}),
    ("--id", {"help": "a message id, unique in the channel"}),
    ("--priority", {"type": int, "default": 0}),
    ("--at", {"help": "when to dispatch, RFC 3339"}),
)
_TOKEN: Final[_Argument] = ("--token", {"required": True})
_CHANNEL_TOKEN: Final[_Argument] = ("--channel-token", {"required": True})

# fmt: off
_REMOTE: Final[tuple[tuple[str, str, _Call, tuple[_Argument, ...]], ...]] = (
    ("status", "counts of every consumer", _status, ()),
    ("events", "the newest events of the service", _events, ()),
    ("channel", "create or change a channel",
        lambda c, a: c.put_channel(a.channel, token=a.token, name=a.name), (_CHANNEL, *_NAMED)),
    ("producer", "create or change a producer",
        lambda c, a: c.put_producer(a.producer, token=a.token, name=a.name),
        (("producer", {}), *_NAMED)),
    ("consumer", "create or change a consumer", _put_consumer, (*_ONE, *_NAMED, *_KEPT)),
    ("publish", "broadcast a message", _publish, (_CHANNEL, *_MESSAGE)),
    ("pause", "stop handing out jobs", lambda c, a: _change(c, a, paused=True), _ONE),
    ("resume", "hand out jobs again", lambda c, a: _change(c, a, paused=False), _ONE),
    ("enable", "call a disabled endpoint again", lambda c, a: _change(c, a, enable=True), _ONE),
    ("job", "a job with its attempts",
        lambda c, a: c.job(a.channel, a.consumer, a.job), (*_ONE, ("job", {}))),
    ("dead", "dead jobs with their last error", _dead, _ONE),
    ("requeue", "requeue all dead jobs", _requeue, (*_ONE, _TOKEN)),
    ("purge", "delete all dead jobs", _purge, (*_ONE, _TOKEN, _CHANNEL_TOKEN)),
)
# fmt: on
