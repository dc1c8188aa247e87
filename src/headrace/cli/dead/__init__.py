"""``headrace dead …``: messages that could not be handled, in the streams that keep them."""

from __future__ import annotations

from ..shared.lazy import LazyGroup, Verb

dead = LazyGroup(
    "dead",
    {
        "ls": Verb("list dead letters: whence, and why", "dead.verbs:ls", ("list", "l")),
        "count": Verb("count them by consumer and reason", "dead.verbs:count"),
        "resend": Verb("publish them again, and remove them", "dead.verbs:resend"),
    },
    "Look at dead letters, and send them again.",
)
