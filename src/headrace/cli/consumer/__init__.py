"""``headrace consumer …``: one module for each verb, or for verbs that belong together."""

from __future__ import annotations

from ..shared.lazy import LazyGroup, Verb

consumer = LazyGroup(
    "consumer",
    {
        "ls": Verb("list the consumers of a stream", "consumer.ls:ls", ("list", "l")),
        "report": Verb("what each has left to do", "consumer.ls:report"),
        "info": Verb("show a consumer", "consumer.info:info", ("nfo", "i")),
        "create": Verb("create a consumer", "consumer.edit:create", ("add", "new")),
        "edit": Verb("change a consumer", "consumer.edit:edit", ("update",)),
        "rm": Verb("delete a consumer", "consumer.state:rm", ("delete", "del")),
        "copy": Verb("create one with the settings of another", "consumer.copy:copy", ("cp",)),
        "sub": Verb("take messages as they come", "consumer.subscribe:sub", ("subscribe",)),
        "next": Verb("take messages, and acknowledge them", "consumer.take:take"),
        "pause": Verb("deliver nothing for a while", "consumer.state:pause"),
        "resume": Verb("deliver again", "consumer.state:resume"),
        "unpin": Verb("let go of a group's pinned client", "consumer.state:unpin"),
        "reset": Verb("deliver from a sequence again", "consumer.state:reset"),
    },
    "Manage consumers and read with them.",
)
