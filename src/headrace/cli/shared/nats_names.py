"""What the ``nats`` tool has under names that are other ones here, or that are not here.

By the words of its command line. docs/reference/commands.md tells the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

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
