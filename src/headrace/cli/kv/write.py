"""``headrace kv put``, ``create``, ``update``, ``revert``, ``del`` and ``purge``."""

from __future__ import annotations

import click

from ..shared.asking import may_go_on
from ..shared.buckets import delete_bucket
from ..shared.messages import payload_of
from ..shared.names import BUCKET, KEYS
from ..shared.units import DURATION
from ..shared.verbs import Session, online

_KEY = click.argument("key", shell_complete=KEYS)
_VALUE = click.argument("value", required=False)
_TTL = click.option(
    "--ttl", type=DURATION, default=0.0, help="remove it after this (needs --marker-ttl)"
)


@online(BUCKET, _KEY, _VALUE, _TTL)
async def put(session: Session, bucket: str, key: str, value: str | None, ttl: float) -> None:
    """Set KEY to VALUE, or to what standard input has, whatever it was."""
    data = payload_of(value)
    revision = await (await session.js.key_value(bucket)).put(key, data, ttl=ttl)
    _show(session, bucket, key, revision)


@online(BUCKET, _KEY, _VALUE, _TTL)
async def create(session: Session, bucket: str, key: str, value: str | None, ttl: float) -> None:
    """Set KEY to VALUE if it has none."""
    data = payload_of(value)
    revision = await (await session.js.key_value(bucket)).create(key, data, ttl=ttl)
    _show(session, bucket, key, revision)


@online(BUCKET, _KEY, click.argument("value"), click.argument("revision", type=click.IntRange(0)))
async def update(session: Session, bucket: str, key: str, value: str, revision: int) -> None:
    """Set KEY to VALUE if REVISION is its newest; - reads standard input."""
    data = payload_of(value)
    now = await (await session.js.key_value(bucket)).update(key, data, revision)
    _show(session, bucket, key, now)


@online(BUCKET, _KEY, click.argument("revision", type=click.IntRange(1)), destroys=True)
async def revert(session: Session, bucket: str, key: str, revision: int) -> None:
    """Set KEY to the value of an earlier REVISION."""
    found = await session.js.key_value(bucket)
    now, then = await found.get(key), await found.get(key, revision=revision)
    what = f"set {bucket} > {key} from revision {now.revision} to the value of revision {revision}"
    if may_go_on(session.output, what):
        new = await found.update(key, then.value, now.revision)
        _show(session, bucket, key, new)


@online(
    BUCKET, click.argument("key", required=False, shell_complete=KEYS), destroys=True, name="del"
)
async def delete(session: Session, bucket: str, key: str | None) -> None:
    """Delete KEY, its history stays; without KEY, the whole bucket."""
    if key is None:
        await delete_bucket(session.js, session.output, bucket, f"KV_{bucket}")
        return
    found = await session.js.key_value(bucket)
    entry = await found.get(key)
    if may_go_on(session.output, f"delete key {key} of bucket {bucket}"):
        await found.delete(key, revision=entry.revision)
        session.output.show({"bucket": bucket, "deleted": key}, f"deleted {bucket} > {key}")


@online(BUCKET, _KEY, destroys=True)
async def purge(session: Session, bucket: str, key: str) -> None:
    """Delete KEY with its history."""
    found = await session.js.key_value(bucket)
    what = f"delete key {key} of bucket {bucket} with its history"
    if may_go_on(session.output, what):
        await found.purge(key)
        session.output.show({"bucket": bucket, "purged": key}, f"purged {bucket} > {key}")


def _show(session: Session, bucket: str, key: str, revision: int) -> None:
    document = {"bucket": bucket, "key": key, "revision": revision}
    session.output.show(document, f"{bucket} > {key} is at revision {revision}")
