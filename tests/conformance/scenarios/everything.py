"""All tables in one, with names checked to be unique."""

from __future__ import annotations

from conformance.scenarios import (
    acks,
    batches,
    configs,
    consumers,
    control,
    core,
    counting,
    direct,
    fastbatch,
    forgeries,
    handovers,
    identities,
    keeping,
    lifetimes,
    listening,
    meetings,
    messages,
    permissions,
    priorities,
    pullrules,
    pulls,
    push,
    republishing,
    scheduling,
    settings,
    sources,
    streams,
    together,
)
from conformance.table import Table

ALL: Table = [
    *core.TABLE,
    *permissions.TABLE,
    *identities.TABLE,
    *forgeries.TABLE,
    *streams.TABLE,
    *messages.TABLE,
    *together.TABLE,
    *consumers.TABLE,
    *configs.TABLE,
    *pulls.TABLE,
    *pullrules.TABLE,
    *acks.TABLE,
    *control.TABLE,
    *listening.TABLE,
    *direct.TABLE,
    *priorities.TABLE,
    *handovers.TABLE,
    *push.TABLE,
    *lifetimes.TABLE,
    *republishing.TABLE,
    *settings.TABLE,
    *sources.TABLE,
    *counting.TABLE,
    *batches.TABLE,
    *fastbatch.TABLE,
    *scheduling.TABLE,
    *keeping.TABLE,
    *meetings.TABLE,
]

_names = [scenario.name for scenario in ALL]
assert len(_names) == len(set(_names)), "two scenarios share a name"
