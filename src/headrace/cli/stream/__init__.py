"""``headrace stream …``: one module for each verb, or for verbs that belong together."""

from __future__ import annotations

from ..shared.lazy import LazyGroup, Verb

__all__ = ["stream"]

stream = LazyGroup(
    "stream",
    {
        "ls": Verb("list the streams", "stream.ls:ls", ("list", "l")),
        "info": Verb("show a stream: configuration and state", "stream.info:info", ("nfo", "i")),
    },
    "Manage streams and look into them.",
)
