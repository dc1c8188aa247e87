"""``headrace group … consume``: a member at work, for trying a group and for watching one."""

from __future__ import annotations

import asyncio
import signal
import sys
from types import SimpleNamespace
from typing import Any, Final

import click

from ...api.consumers import ConsumerConfig
from ...client import JetStream
from ...errors import HeadraceError
from ...groups import GroupMessage, elastic, static
from ...quantities import counted
from ..shared.output import one_of_many
from ..shared.verbs import Declare
from .arguments import ranges

_WORKS_S: Final = 0.02
_ACK_WAIT_S: Final = 2.0
"""So soon an instance that is gone is replaced."""

CONSUME_OPTIONS: Final[tuple[Declare, ...]] = (
    click.option("--count", type=int, default=0, metavar="N", help="end after this many messages"),
)


async def consume(js: JetStream, args: SimpleNamespace) -> int:
    """Print a member's messages until Ctrl-C, or until the group is deleted."""
    working = _Working(args)
    verbs: Any = static if args.kind == "static" else elastic
    config = ConsumerConfig(ack_policy="explicit", ack_wait=_ACK_WAIT_S, max_ack_pending=1)
    membership = verbs.join(
        js,
        args.stream,
        args.group,
        args.member,
        working.handle,
        config,
        on_active=working.active,
        on_standby=working.standby,
        on_error=working.failed,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, working.end)
    try:
        async with membership:
            working.membership = membership
            working.say("joined", f"joined as {args.member}; Ctrl-C leaves")
            ended = asyncio.ensure_future(membership.wait())
            asked = asyncio.ensure_future(working.asked.wait())
            await asyncio.wait([ended, asked], return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            if working.asked.is_set():
                for number in (signal.SIGINT, signal.SIGTERM):
                    loop.remove_signal_handler(number)  # the next one ends at once
                working.say("leaving", "leaving")
                await membership.leave()
            await ended
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    working.say("left", f"left after {counted(working.count, 'message')}")
    return 0


class _Working:
    """What is printed and done for each message. Messages go to stdout, what is said of them to stderr;
    with ``--json`` and ``--yaml`` everything goes to stdout, a document a line."""

    def __init__(self, args: SimpleNamespace) -> None:
        self._args = args
        self.membership: Any = None
        self.asked = asyncio.Event()
        self.count = 0

    def end(self) -> None:
        self.asked.set()

    async def handle(self, message: GroupMessage) -> None:
        if self.asked.is_set():
            return
        await asyncio.sleep(_WORKS_S)
        try:
            await message.ack_sync()
        except HeadraceError as error:
            self.say("unacknowledged", f"not acknowledged, it comes again: {error}")
            return
        self.count += 1
        self._print(message)
        if self.count == self._args.count:
            self.end()

    def _print(self, message: GroupMessage) -> None:
        text = message.payload.decode(errors="replace")
        if self._args.form != "text":
            found = {
                "event": "message",
                "sequence": message.metadata.stream_seq,
                "partition": message.partition,
                "subject": message.subject,
                "payload": text,
                "generation": message.generation,
                "delivered": message.metadata.delivered,
            }
            print(one_of_many(found, self._args.form), flush=True)
            return
        again = (
            f" (delivery {message.metadata.delivered})" if message.metadata.delivered > 1 else ""
        )
        print(f"[{message.partition}] {message.subject}: {text}{again}", flush=True)

    def active(self, generation: int) -> None:
        numbers = self.membership.partitions if self.membership else ()
        text = f"active, partitions {ranges(numbers) or '?'}, generation {generation}"
        self.say("active", text, partitions=[*numbers], generation=generation)

    def standby(self) -> None:
        self.say("standby", "standby")

    def failed(self, error: Exception) -> None:
        self.say("error", str(error))

    def say(self, event: str, text: str, **more: object) -> None:
        """Tell of what happens to the member."""
        if self._args.form != "text":
            found = {"event": event, "text": text, **more}
            print(one_of_many(found, self._args.form), flush=True)
        else:
            print(text, file=sys.stderr, flush=True)
