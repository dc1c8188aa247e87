"""``headrace store …``: the broker's own store, while no broker runs on it."""

from __future__ import annotations

from ..shared.lazy import LazyGroup, Verb

store = LazyGroup(
    "store",
    {
        "check": Verb(
            "read everything and tell what is wrong; changes nothing", "store.check:check"
        ),
        "repair": Verb("write damaged streams anew, without what is lost", "store.check:repair"),
        "scrub": Verb("read the files again and compare checksums", "store.check:scrub"),
        "export": Verb("save the streams as backups or JSON lines", "store.export:export"),
    },
    "Look after the broker's own store, while no broker runs on it.",
)
