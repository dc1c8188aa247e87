"""Which commands there are, where each is, and what it is for. Imports nothing: help must be quick."""

from __future__ import annotations

from typing import Final, NamedTuple


class CommandEntry(NamedTuple):
    """One command.

    Attributes:
        summary: what it does, in a few words.
        target: ``module:attribute`` in ``headrace.cli`` of a click command; "" for a module of the
            command's name that uses argparse, and works without the extra ``cli``.
        aliases: other names; those of the ``nats`` tool.
    """

    summary: str
    target: str = ""
    aliases: tuple[str, ...] = ()


SECTIONS: Final[dict[str, dict[str, CommandEntry]]] = {
    "run": {
        "serve": CommandEntry("run the broker"),
        "jobs": CommandEntry(
            "deliver jobs over HTTP: push and pull consumers, retries, dead letters", "jobs:jobs"
        ),
        "pipeline": CommandEntry("run Spark queries that a file declares", "pipeline:pipeline"),
        "worker": CommandEntry("run what a program handles: consumers and groups", "worker:worker"),
        "console": CommandEntry("show a server in the browser", "console:console"),
        "demo": CommandEntry(
            "publish a year of real flights, read them with Spark, draw how delays carry over"
        ),
    },
    "messages": {
        "pub": CommandEntry("publish messages", "messaging.publish:pub", ("publish",)),
        "sub": CommandEntry(
            "show messages as they come", "messaging.subscribe:sub", ("subscribe",)
        ),
        "request": CommandEntry(
            "send a request and show the answers", "messaging.request:request", ("req",)
        ),
        "reply": CommandEntry("answer requests", "messaging.reply:reply"),
    },
    "streams": {
        "stream": CommandEntry("manage streams and look into them", "stream:stream", ("str", "s")),
        "consumer": CommandEntry(
            "manage consumers and read with them", "consumer:consumer", ("con", "c")
        ),
        "dead": CommandEntry("dead letters: list, count, send again", "dead:dead"),
        "kv": CommandEntry("keys and values in buckets", "kv:kv"),
        "object": CommandEntry("objects of any size in buckets", "object:objects", ("obj",)),
        "group": CommandEntry(
            "consumer groups: static and elastic, strict order for each key", "group:group"
        ),
    },
    "servers": {
        "server": CommandEntry(
            "look at a server: info, checks, reports, top", "server:server", ("srv",)
        ),
        "events": CommandEntry(
            "show what the server tells of itself", "server.events:events", ("event",)
        ),
        "account": CommandEntry("what our account may hold, and holds", "server:account", ("a",)),
        "rtt": CommandEntry("measure the time to the server and back", "server.info:ping"),
        "doctor": CommandEntry(
            "find what is wrong here, and the command that mends it", "doctor:doctor"
        ),
        "store": CommandEntry(
            "check, repair and export the store of a stopped broker", "store:store"
        ),
        "auth": CommandEntry(
            "make operators, accounts and users of decentralised logins", "auth:auth"
        ),
        "context": CommandEntry(
            "remember how to connect, as the nats tool does", "context:context", ("ctx",)
        ),
    },
    "tools": {
        "bench": CommandEntry(
            "measure how fast the server takes and gives messages", "bench:bench"
        ),
        "errors": CommandEntry(
            "what the numbers of JetStream's errors mean", "server.errors:errors", ("error", "err")
        ),
        "packaging": CommandEntry(
            "show the files that run Headrace as a service", "packaging:packaging"
        ),
        "completion": CommandEntry("complete words in bash, zsh and fish", "completion:completion"),
    },
}
"""Every command, in the order of the help."""

COMMANDS: Final = {name: entry for part in SECTIONS.values() for name, entry in part.items()}


def resolve(name: str) -> str:
    """The command of this name or alias, or ""."""
    if name in COMMANDS:
        return name
    return next((own for own, entry in COMMANDS.items() if name in entry.aliases), "")
