"""``headrace consumer rm STREAM CONSUMER``."""

from __future__ import annotations

from ..shared.asking import may_go_on
from ..shared.names import CONSUMER, STREAM
from ..shared.verbs import Session, online


@online(STREAM, CONSUMER, destroys=True)
async def rm(session: Session, stream: str, consumer: str, force: bool, dry_run: bool) -> None:
    """Delete a consumer; the messages stay in the stream."""
    info = await (await session.js.consumer(stream, consumer)).info()
    what = (
        f"delete consumer {consumer} of stream {stream} with {info.num_ack_pending:,} messages without an "
        f"answer and {info.num_pending:,} left"
    )
    if may_go_on(session.output, what, force=force, dry_run=dry_run):
        await session.js.delete_consumer(stream, consumer)
        document = {"stream": stream, "deleted": consumer}
        session.output.show(document, f"deleted consumer {consumer} of stream {stream}")
