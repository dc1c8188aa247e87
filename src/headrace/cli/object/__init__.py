"""``headrace object …``: one module for verbs that belong together."""

from __future__ import annotations

from ..shared.lazy import LazyGroup, Verb

objects = LazyGroup(
    "object",
    {
        "ls": Verb("list the buckets, or the objects of one", "object.read:ls", ("list",)),
        "add": Verb("create a bucket", "object.bucket:add", ("new",)),
        "info": Verb("show a bucket, or an object", "object.bucket:info", ("status",)),
        "put": Verb("store a file", "object.write:put"),
        "get": Verb("write an object to a file", "object.read:get"),
        "watch": Verb("show changes as they come", "object.read:watch"),
        "del": Verb("delete an object, or a bucket", "object.write:delete", ("rm", "delete")),
        "seal": Verb("make a bucket read-only, for good", "object.write:seal"),
    },
    "Objects of any size in buckets.",
)
