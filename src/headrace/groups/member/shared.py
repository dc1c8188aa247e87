"""What all the consumers of one membership share."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...handling.failure import OnFailure
from ...handling.threads import Threads
from .config import Settings
from .limit import HandlerLimit
from .loop_watch import LoopWatch
from .ownership.lease import Generation
from .silence import Silence

if TYPE_CHECKING:
    from ...client import JetStream
    from ...client.events import Event
    from ..message import GroupMessage
    from .ownership.intake import Copied

Handler = Callable[["GroupMessage"], object]


@dataclass(slots=True)
class Shared:
    """Handed to every consumer's shell by the membership.

    Attributes:
        js, stream: where the consumers are.
        group: its name.
        label: group and member, for texts.
        settings: how the consumers are configured.
        handler, on_failure: what is called for a message, and what follows when that fails.
        concurrency, key: how many handlers run at once, and what must not run twice.
        limit: places for handlers, where several consumers share them.
        report: takes errors that nobody waits for, and what they are about.
        failed: takes the error that ends the membership.
        began, ended: are told of every generation.
        attached: is told when it reads a consumer.
        threads: where a plain handler runs.
        watch: is told of handlers that take long.
        silence: what is known of missed heartbeats.
        emit: takes events.
        random: for pauses of random length.
        copied: of an elastic group: how far its work queue is known to have copied the stream.
    """

    js: JetStream
    stream: str
    group: str
    label: str
    settings: Settings
    handler: Handler
    on_failure: OnFailure
    concurrency: int
    key: Callable[[GroupMessage], Hashable]
    limit: HandlerLimit | None
    report: Callable[..., None]
    failed: Callable[[Exception], None]
    began: Callable[[Generation], None]
    ended: Callable[[Generation], None]
    attached: Callable[[], None]
    threads: Threads
    watch: LoopWatch
    silence: Silence
    emit: Callable[[Event], None]
    random: random.Random = field(default_factory=random.Random)
    copied: Copied | None = None

    async def call(self, message: GroupMessage) -> None:
        """Call a handler that is a coroutine function, once more."""
        await self.handler(message)  # type: ignore[misc]
