"""``headrace context …``: the files of the ``nats`` tool, read and written."""

from __future__ import annotations

from ..shared.lazy import LazyGroup, Verb

context = LazyGroup(
    "context",
    {
        "ls": Verb("list the contexts", "context.verbs:ls", ("list",)),
        "create": Verb("remember how to connect", "context.verbs:create", ("add", "save", "new")),
        "edit": Verb("change a context", "context.verbs:edit", ("update",)),
        "select": Verb("connect so from now on", "context.verbs:select", ("switch", "set")),
        "info": Verb("show a context", "context.verbs:info", ("show",)),
        "validate": Verb("check that contexts can be used", "context.verbs:validate"),
        "copy": Verb("begin a context as a copy of another", "context.verbs:copy", ("cp",)),
        "rm": Verb("forget a context", "context.verbs:rm", ("delete", "del")),
    },
    "Remember how to connect, in the files of the nats tool.",
)
