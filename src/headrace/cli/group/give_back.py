"""``headrace group … give-back``: lets go of the partitions that a stopped Spark query holds as a member."""

from __future__ import annotations

from ...client import JetStream
from ...groups import elastic, static
from ...groups.server.consumers import existing, stream_of
from ..shared.asking import may_go_on
from ..shared.errors import Failure
from .commands import Args


async def give_back(js: JetStream, args: Args) -> int:
    """Let ordinary instances of the member have what a query holds. Raises Failure if none holds anything."""
    from ...spark.grouped.holding import is_held_by, names_of, released

    member, is_static = args.member, args.kind == "static"
    group = await (static if is_static else elastic).get(js, args.stream, args.group)
    stream = stream_of(group)
    infos = await existing(js, stream, names_of(group, member))
    held = sorted((each for each in infos if is_held_by(each, member)), key=lambda each: each.name)
    what = f"{args.kind} group {args.group} of stream {args.stream}"
    if not held:
        raise Failure(f"no Spark query holds anything as member {member!r} of {what}")
    names = [each.name for each in held]
    giving = f"give back {', '.join(names)} of {what}, which lets a query that still runs fail"
    if not may_go_on(args.output, giving):
        return 0
    for each in held:
        if is_static:
            # The signs last: as long as they are there, instances leave it alone, and this can be repeated.
            consumer = await js.consumer(stream, each.name)
            await consumer.resume()
            await js.update_consumer(stream, released((await consumer.info()).config))
        else:
            await js.delete_consumer(stream, each.name)
    shown = f"gave back {', '.join(names)}; instances of {member} take part again"
    args.output.show({"member": member, "given_back": names}, shown)
    return 0
