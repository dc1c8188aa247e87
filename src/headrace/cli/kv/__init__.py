"""``headrace kv …``: one module for verbs that belong together."""

from __future__ import annotations

from ..shared.lazy import LazyGroup, Verb

kv = LazyGroup(
    "kv",
    {
        "ls": Verb("list the buckets, or the keys of one", "kv.read:ls", ("list",)),
        "add": Verb("create a bucket", "kv.bucket:add", ("new",)),
        "info": Verb("show a bucket", "kv.bucket:info", ("status",)),
        "put": Verb("set a key", "kv.write:put"),
        "create": Verb("set a key that has no value", "kv.write:create"),
        "update": Verb("set a key if nobody else did meanwhile", "kv.write:update"),
        "get": Verb("show a value", "kv.read:get"),
        "history": Verb("show the revisions of a key", "kv.read:history"),
        "revert": Verb("set a key to an earlier revision", "kv.write:revert"),
        "watch": Verb("show changes as they come", "kv.read:watch"),
        "del": Verb("delete a key, or a bucket", "kv.write:delete", ("rm", "delete")),
        "purge": Verb("delete a key with its history", "kv.write:purge"),
        "compact": Verb("forget what was deleted", "kv.bucket:compact"),
    },
    "Keys and values in buckets.",
)
