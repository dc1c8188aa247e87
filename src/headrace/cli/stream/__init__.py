"""``headrace stream …``: one module for each verb, or for verbs that belong together."""

from __future__ import annotations

from ..shared.lazy import LazyGroup, Verb

stream = LazyGroup(
    "stream",
    {
        "ls": Verb("list the streams", "stream.ls:ls", ("list", "l")),
        "report": Verb("who holds what: messages, bytes, consumers", "stream.ls:report"),
        "info": Verb("show a stream: configuration and state", "stream.info:info", ("nfo", "i")),
        "subjects": Verb("count the messages of each subject", "stream.info:subjects", ("subj",)),
        "create": Verb("create a stream", "stream.edit:create", ("add", "new")),
        "edit": Verb("change the configuration of a stream", "stream.edit:edit", ("update",)),
        "rm": Verb("delete a stream with everything in it", "stream.remove:rm", ("delete", "del")),
        "purge": Verb("remove messages, and keep the stream", "stream.remove:purge"),
        "rmm": Verb("remove one message", "stream.remove:rmm"),
        "seal": Verb("make a stream read-only, for good", "stream.remove:seal"),
        "view": Verb("show the messages of a stream", "stream.view:view"),
        "get": Verb("show one message", "stream.view:get"),
        "backup": Verb("save a stream, or all, in a directory", "stream.backup:backup"),
        "restore": Verb("make a stream of a backup", "stream.backup:restore"),
        "copy": Verb("copy a stream to another server, and go on", "stream.copy:copy", ("cp",)),
        "rename": Verb("give a stream another name", "stream.rename:rename", ("mv",)),
        "repartition": Verb(
            "number the subjects for other partitions", "stream.repartition:repartition"
        ),
    },
    "Manage streams and look into them.",
)
