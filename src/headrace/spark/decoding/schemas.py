"""The schemas of writers that lie in a bucket."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

from ...api import base
from ...api.envelope import decode_response
from ...api.messages import GetMessageRequest, GetMessageResponse, StoredMessageDocument
from ...errors import ConfigurationError, JetStreamApiError
from ...schemas.errors import NoSchemaError
from ...schemas.limits import SCHEMAS_KEPT_MAX, clipped
from ..frames.rows import is_deletion
from ..links.control import StreamMissingError
from ..links.link import Link
from ..links.outages import ServerPatience
from ..reading.snapshot import SnapshotPlan, read_snapshot

_MESSAGE_NOT_FOUND: Final = 10037
_STREAM_NOT_FOUND: Final = 10059


class SchemaBucket:
    """The schemas in a key-value bucket, each under its id; one that was read is kept.

    Args:
        bucket, prefix: where they are.
        connect: opens (or lends) a link; it is used for nothing else meanwhile.
        patience: how long to wait for a server that is away.
    """

    def __init__(
        self, bucket: str, prefix: str, connect: Callable[[], Link], patience: ServerPatience
    ) -> None:
        self._stream = f"KV_{bucket}"
        self._bucket = bucket
        self._subject = f"$KV.{bucket}.{prefix}." if prefix else f"$KV.{bucket}."
        self._connect = connect
        self._patience = patience
        self._link: Link | None = None
        self._known: dict[str, bytes] = {}

    def get(self, schema_id: str) -> bytes:
        """The schema of this id. Raises NoSchemaError."""
        found = self._known.get(schema_id)
        if found is None:
            found = self._known[schema_id] = self._fetch(schema_id)
            if len(self._known) > SCHEMAS_KEPT_MAX:
                del self._known[next(iter(self._known))]
        return found

    def newest(self) -> bytes:
        """The schema that was stored last. Raises ConfigurationError if there is none."""
        plan = SnapshotPlan(self._stream, f"{self._subject}>", 1000, 5.0, 5.0)
        newest = b""
        try:
            for chunk in read_snapshot(self._connect, plan, self._patience):
                newest = chunk.payloads[-1]  # in the order of the stream
        except StreamMissingError:
            raise self._missing() from None
        if not newest:
            raise ConfigurationError(
                f"jetstream source: bucket {self._bucket!r} has no schema under {self._subject[4:]}*"
            )
        return newest

    def _fetch(self, schema_id: str) -> bytes:
        request = base.encode(GetMessageRequest(last_by_subj=self._subject + schema_id))
        try:
            message = self._patience.persist(lambda: self._ask(request), self._let_go)
        except JetStreamApiError as error:
            if error.err_code == _MESSAGE_NOT_FOUND:
                raise self._unknown(schema_id) from None
            if error.err_code == _STREAM_NOT_FOUND:
                raise self._missing() from None
            raise
        self._patience.restart()
        if is_deletion(base64.b64decode(message.hdrs)):
            raise self._unknown(schema_id)
        return base64.b64decode(message.data)

    def _ask(self, request: bytes) -> StoredMessageDocument:
        if self._link is None or self._link.closed:
            self._link = self._connect()
        subject = self._link.api("STREAM", "MSG", "GET", self._stream)
        answer = self._link.request(subject, request)
        return decode_response(answer.payload, GetMessageResponse).message

    def _let_go(self) -> None:
        if self._link is not None:
            self._link.close()

    def _unknown(self, schema_id: str) -> NoSchemaError:
        return NoSchemaError(f"no schema {clipped(schema_id)!r} in bucket {self._bucket!r}")

    def _missing(self) -> ConfigurationError:
        return ConfigurationError(
            f"jetstream source: there is no bucket {self._bucket!r} for 'schemaBucket'"
        )
