"""Which commands there are, where each is, and what it is for. Imports nothing: help must be quick."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import click


class CommandEntry(NamedTuple):
    """One command.

    Attributes:
        summary: what it does, in a few words.
        target: ``module:attribute`` in ``headrace.cli`` of a click command, or the command itself.
        aliases: other names; those of the ``nats`` tool.
        verbs: the commands below it. One without these and without a target is a module of the
            command's name that uses argparse, and works without the extra ``cli``.
    """

    summary: str
    target: str | click.Command = ""
    aliases: tuple[str, ...] = ()
    verbs: Mapping[str, CommandEntry] = MappingProxyType({})

    @property
    def uses_click(self) -> bool:
        """Whether click runs it."""
        return bool(self.target or self.verbs)


SECTIONS: Final[dict[str, dict[str, CommandEntry]]] = {
    "run": {
        "serve": CommandEntry("run the broker"),
        "jobs": CommandEntry(
            "deliver jobs over HTTP: push and pull consumers, retries, dead letters", "jobs:jobs"
        ),
        "pipeline": CommandEntry(
            "run Spark queries that a file declares",
            verbs={
                "new": CommandEntry("write a first pipeline, with a test", "pipeline.new:new"),
                "validate": CommandEntry(
                    "look for mistakes, without Spark in less than a second",
                    "pipeline.validate:validate",
                ),
                "graph": CommandEntry(
                    "show how rows go: a tree, Mermaid, SVG", "pipeline.graph:graph"
                ),
                "test": CommandEntry(
                    "give rows to sources and compare what comes, without a server",
                    "pipeline.testing:run_tests",
                ),
                "run": CommandEntry("run the queries until Ctrl-C", "pipeline.run:run"),
                "once": CommandEntry("process what is there, then end", "pipeline.run:once"),
                "status": CommandEntry(
                    "show how each query is, without Spark", "pipeline.status:status"
                ),
                "explain": CommandEntry(
                    "show what each query reads: positions, subjects, markers",
                    "pipeline.explain:explain",
                ),
                "reset": CommandEntry(
                    "begin again at another place; nothing is destroyed", "pipeline.reset:reset"
                ),
                "relocate": CommandEntry(
                    "take results that were moved where they lie now", "pipeline.relocate:relocate"
                ),
                "replay": CommandEntry(
                    "run a range through a query again, into results of its own",
                    "pipeline.run:replay",
                ),
            },
        ),
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
        "stream": CommandEntry(
            "manage streams and look into them",
            aliases=("str", "s"),
            verbs={
                "ls": CommandEntry("list the streams", "stream.ls:ls", ("list", "l")),
                "report": CommandEntry(
                    "who holds what: messages, bytes, consumers", "stream.ls:report"
                ),
                "info": CommandEntry(
                    "show a stream: configuration and state", "stream.info:info", ("nfo", "i")
                ),
                "subjects": CommandEntry(
                    "count the messages of each subject", "stream.info:subjects", ("subj",)
                ),
                "create": CommandEntry("create a stream", "stream.edit:create", ("add", "new")),
                "edit": CommandEntry(
                    "change the configuration of a stream", "stream.edit:edit", ("update",)
                ),
                "rm": CommandEntry(
                    "delete a stream with everything in it", "stream.remove:rm", ("delete", "del")
                ),
                "purge": CommandEntry(
                    "remove messages, and keep the stream", "stream.remove:purge"
                ),
                "rmm": CommandEntry("remove one message", "stream.remove:rmm"),
                "seal": CommandEntry("make a stream read-only, for good", "stream.remove:seal"),
                "view": CommandEntry("show the messages of a stream", "stream.view:view"),
                "get": CommandEntry("show one message", "stream.view:get"),
                "backup": CommandEntry(
                    "save a stream, or all, in a directory", "stream.backup:backup"
                ),
                "restore": CommandEntry("make a stream of a backup", "stream.backup:restore"),
                "copy": CommandEntry(
                    "copy a stream to another server, and go on", "stream.copy:copy", ("cp",)
                ),
                "rename": CommandEntry(
                    "give a stream another name", "stream.rename:rename", ("mv",)
                ),
                "repartition": CommandEntry(
                    "number the subjects for other partitions", "stream.repartition:repartition"
                ),
            },
        ),
        "consumer": CommandEntry(
            "manage consumers and read with them",
            aliases=("con", "c"),
            verbs={
                "ls": CommandEntry(
                    "list the consumers of a stream", "consumer.ls:ls", ("list", "l")
                ),
                "report": CommandEntry("what each has left to do", "consumer.ls:report"),
                "info": CommandEntry("show a consumer", "consumer.info:info", ("nfo", "i")),
                "create": CommandEntry("create a consumer", "consumer.edit:create", ("add", "new")),
                "edit": CommandEntry("change a consumer", "consumer.edit:edit", ("update",)),
                "rm": CommandEntry("delete a consumer", "consumer.state:rm", ("delete", "del")),
                "copy": CommandEntry(
                    "create one with the settings of another", "consumer.copy:copy", ("cp",)
                ),
                "sub": CommandEntry(
                    "take messages as they come", "consumer.subscribe:sub", ("subscribe",)
                ),
                "next": CommandEntry("take messages, and acknowledge them", "consumer.take:take"),
                "pause": CommandEntry("deliver nothing for a while", "consumer.state:pause"),
                "resume": CommandEntry("deliver again", "consumer.state:resume"),
                "unpin": CommandEntry("let go of a group's pinned client", "consumer.state:unpin"),
                "reset": CommandEntry("deliver from a sequence again", "consumer.state:reset"),
            },
        ),
        "dead": CommandEntry(
            "dead letters: list, count, send again",
            verbs={
                "ls": CommandEntry(
                    "list dead letters: whence, and why", "dead.verbs:ls", ("list", "l")
                ),
                "count": CommandEntry("count them by consumer and reason", "dead.verbs:count"),
                "resend": CommandEntry("publish them again, and remove them", "dead.verbs:resend"),
            },
        ),
        "kv": CommandEntry(
            "keys and values in buckets",
            verbs={
                "ls": CommandEntry("list the buckets, or the keys of one", "kv.read:ls", ("list",)),
                "add": CommandEntry("create a bucket", "kv.bucket:add", ("new",)),
                "info": CommandEntry("show a bucket", "kv.bucket:info", ("status",)),
                "put": CommandEntry("set a key", "kv.write:put"),
                "create": CommandEntry("set a key that has no value", "kv.write:create"),
                "update": CommandEntry("set a key if nobody else did meanwhile", "kv.write:update"),
                "get": CommandEntry("show a value", "kv.read:get"),
                "history": CommandEntry("show the revisions of a key", "kv.read:history"),
                "revert": CommandEntry("set a key to an earlier revision", "kv.write:revert"),
                "watch": CommandEntry("show changes as they come", "kv.read:watch"),
                "del": CommandEntry(
                    "delete a key, or a bucket", "kv.write:delete", ("rm", "delete")
                ),
                "purge": CommandEntry("delete a key with its history", "kv.write:purge"),
                "compact": CommandEntry("forget what was deleted", "kv.bucket:compact"),
            },
        ),
        "object": CommandEntry(
            "objects of any size in buckets",
            aliases=("obj",),
            verbs={
                "ls": CommandEntry(
                    "list the buckets, or the objects of one", "object.read:ls", ("list",)
                ),
                "add": CommandEntry("create a bucket", "object.bucket:add", ("new",)),
                "info": CommandEntry(
                    "show a bucket, or an object", "object.bucket:info", ("status",)
                ),
                "put": CommandEntry("store a file", "object.write:put"),
                "get": CommandEntry("write an object to a file", "object.read:get"),
                "watch": CommandEntry("show changes as they come", "object.read:watch"),
                "del": CommandEntry(
                    "delete an object, or a bucket", "object.write:delete", ("rm", "delete")
                ),
                "seal": CommandEntry("make a bucket read-only, for good", "object.write:seal"),
            },
        ),
        "group": CommandEntry(
            "consumer groups: static and elastic, strict order for each key", "group:group"
        ),
    },
    "servers": {
        "server": CommandEntry(
            "look at a server: info, checks, reports, top",
            aliases=("srv",),
            verbs={
                "info": CommandEntry(
                    "show the server, and what it holds", "server.info:info", ("i",)
                ),
                "ping": CommandEntry("measure the time there and back", "server.info:ping"),
                "report": CommandEntry(
                    "connections, accounts, JetStream, health",
                    aliases=("rep",),
                    verbs={
                        "connections": CommandEntry(
                            "who is connected, and what passes",
                            "server.report:connections",
                            ("conn",),
                        ),
                        "accounts": CommandEntry(
                            "what each account uses", "server.report:accounts", ("acct",)
                        ),
                        "jetstream": CommandEntry(
                            "what each server stores", "server.report:jetstream", ("js",)
                        ),
                        "health": CommandEntry(
                            "whether each server is healthy", "server.report:health"
                        ),
                    },
                ),
                "top": CommandEntry("who sends and receives most, live", "server.top:top"),
                "check": CommandEntry(
                    "checks for monitoring systems (Nagios, Prometheus)", "server.check:check"
                ),
            },
        ),
        "events": CommandEntry(
            "show what the server tells of itself", "server.events:events", ("event",)
        ),
        "account": CommandEntry(
            "what our account may hold, and holds",
            aliases=("a",),
            verbs={
                "info": CommandEntry(
                    "show who we are, and what our account holds", "server.info:info", ("nfo",)
                ),
            },
        ),
        "rtt": CommandEntry("measure the time to the server and back", "server.info:ping"),
        "doctor": CommandEntry(
            "find what is wrong here, and the command that mends it", "doctor:doctor"
        ),
        "store": CommandEntry(
            "check, repair and export the store of a stopped broker",
            verbs={
                "check": CommandEntry(
                    "read everything and tell what is wrong; changes nothing", "store.check:check"
                ),
                "repair": CommandEntry(
                    "write damaged streams anew, without what is lost", "store.check:repair"
                ),
                "scrub": CommandEntry(
                    "read the files again and compare checksums", "store.check:scrub"
                ),
                "export": CommandEntry(
                    "save the streams as backups or JSON lines", "store.export:export"
                ),
            },
        ),
        "auth": CommandEntry(
            "make operators, accounts and users of decentralised logins",
            verbs={
                "operator": CommandEntry(
                    "the operator, who signs accounts",
                    verbs={
                        "create": CommandEntry(
                            "make an operator", "auth.operator:create", ("add",)
                        ),
                        "info": CommandEntry("show the operator", "auth.operator:info", ("show",)),
                        "key": CommandEntry("make another signing key", "auth.operator:key"),
                    },
                ),
                "account": CommandEntry(
                    "accounts, which sign their users",
                    verbs={
                        "ls": CommandEntry("list the accounts", "auth.account:ls", ("list",)),
                        "create": CommandEntry("make an account", "auth.account:create", ("add",)),
                        "info": CommandEntry(
                            "show an account and its limits", "auth.account:info", ("show",)
                        ),
                        "edit": CommandEntry(
                            "change the limits of an account", "auth.account:edit", ("update",)
                        ),
                        "key": CommandEntry("make another signing key", "auth.account:key"),
                    },
                ),
                "user": CommandEntry(
                    "users, and their credentials files",
                    verbs={
                        "ls": CommandEntry(
                            "list the users of an account", "auth.user:ls", ("list",)
                        ),
                        "create": CommandEntry(
                            "make a user and its credentials file", "auth.user:create", ("add",)
                        ),
                        "info": CommandEntry(
                            "show what a user may do", "auth.user:info", ("show",)
                        ),
                        "revoke": CommandEntry(
                            "accept the credentials of a user no longer", "auth.user:revoke"
                        ),
                    },
                ),
                "config": CommandEntry("write what a server needs to know", "auth.server:config"),
                "nkey": CommandEntry("make a key pair", "auth.server:nkey"),
            },
        ),
        "context": CommandEntry(
            "remember how to connect, as the nats tool does",
            aliases=("ctx",),
            verbs={
                "ls": CommandEntry("list the contexts", "context.verbs:ls", ("list",)),
                "create": CommandEntry(
                    "remember how to connect", "context.verbs:create", ("add", "save", "new")
                ),
                "edit": CommandEntry("change a context", "context.verbs:edit", ("update",)),
                "select": CommandEntry(
                    "connect so from now on", "context.verbs:select", ("switch", "set")
                ),
                "info": CommandEntry("show a context", "context.verbs:info", ("show",)),
                "validate": CommandEntry(
                    "check that contexts can be used", "context.verbs:validate"
                ),
                "copy": CommandEntry(
                    "begin a context as a copy of another", "context.verbs:copy", ("cp",)
                ),
                "rm": CommandEntry("forget a context", "context.verbs:rm", ("delete", "del")),
            },
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
