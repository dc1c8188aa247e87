"""The endpoints STREAM.SNAPSHOT and STREAM.RESTORE, and what is under way because of them.

A backup leaves in the form of nats-server 2.15; one of that or of the older form is taken in.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .....api.envelope import encode_error, encode_response
from .....api.errors import Errors
from .....api.snapshots import (
    RestoreRequest,
    RestoreResponse,
    SnapshotRequest,
    SnapshotResponse,
)
from .....api.streams import StreamInfo
from .....errors import StoreError
from .....limits import RESTORE_IDLE_S, RESTORES_MAX, SNAPSHOTS_MAX
from .....subjects import is_valid_subject
from ...ports.bus import Origin
from ..config.refused import Refused
from ..config.sources import check_counts
from ..context import Context
from .dispatcher import ApiDispatcher, Call
from .ports import Assets, stream_of
from .streams import StreamsApi, stream_info

if TYPE_CHECKING:  # a broker starts without what reads and writes backups
    from .receiving import Receiving
    from .restoring import RestoredStreams
    from .sending import Sending

_ACKS: Final = b"$JS.SNAPSHOT.ACK.>"
_CHUNKS: Final = b"$JS.SNAPSHOT.RESTORE.>"
_ID_TOKEN: Final = 4
_NS: Final = 1_000_000_000
_CREATED: Final = "stream_create_response"


def _token(subject: bytes) -> str:
    tokens = subject.split(b".", _ID_TOKEN + 1)
    return tokens[_ID_TOKEN].decode(errors="replace") if len(tokens) > _ID_TOKEN else ""


class SnapshotsApi:
    """Backups of an account's streams, out and in."""

    def __init__(
        self,
        context: Context,
        assets: Assets,
        api: ApiDispatcher,
        streams: StreamsApi,
        restored: RestoredStreams,
    ) -> None:
        self._context = context
        self._assets = assets
        self._api = api
        self._streams = streams
        self._restored = restored
        self._sending: dict[str, Sending] = {}
        self._receiving: dict[str, Receiving] = {}
        api.add("STREAM.SNAPSHOT", "stream_snapshot_response", self._snapshot)
        api.add(
            "STREAM.RESTORE",
            "stream_restore_response",
            self._restore,
            blank={"deliver_subject": ""},
            changes=True,
            paced=True,
        )
        context.bus.add_sink(_ACKS, self._answered)
        context.bus.add_sink(_CHUNKS, self._chunk)
        context.bus.on_unblocked(self._unblocked)

    # -- out

    def _snapshot(self, call: Call) -> None:
        if call.payload.strip() in (b"", b"{}"):
            raise Refused(Errors.BAD_REQUEST)
        stream = stream_of(self._assets, call.names[0])
        request = call.read(SnapshotRequest)
        if not is_valid_subject(request.deliver_subject.encode()):
            raise Refused(Errors.SNAPSHOT_DELIVER_SUBJECT_INVALID)
        if len(self._sending) >= SNAPSHOTS_MAX:
            raise Refused(Errors.STREAM_SNAPSHOT, err=f"{SNAPSHOTS_MAX} snapshots are under way")
        info = stream_info(stream, self._context, listed=True)
        state = info.state
        durable = stream.store.durable_seq
        if state.last_seq > durable:  # what is not durable yet might never have been
            state = msgspec.structs.replace(state, last_seq=max(durable, state.first_seq - 1))
        from .sending import Sending

        sending = Sending(self._context, stream, request, state, self._sent)
        sending.client = _describe(call.origin)
        self._sending[sending.id] = sending
        self._api.complete(call, SnapshotResponse(config=info.config, state=state))
        self._context.advisories.snapshot_created(stream.name, state, sending.client)
        sending.start()

    def _sent(self, sending: Sending, error: str) -> None:
        self._sending.pop(sending.id, None)
        self._context.advisories.snapshot_completed(
            sending.stream.name, sending.started_ns, sending.client, error
        )

    def _answered(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
    ) -> bool | None:
        sending = self._sending.get(_token(subject))
        if sending is None:
            return False
        sending.answered()
        return None

    def _unblocked(self) -> None:
        for sending in list(self._sending.values()):
            if sending.blocked:
                sending.go_on()

    # -- in

    def _restore(self, call: Call) -> None:
        if call.payload.strip() in (b"", b"{}"):
            raise Refused(Errors.BAD_REQUEST)
        request = call.read(RestoreRequest, lambda asked: check_counts(asked.config))
        name = call.names[0]
        config = request.config
        if not config.name:
            config = msgspec.structs.replace(config, name=name)
        if config.name != name:
            raise Refused(Errors.STREAM_NAME_MISMATCH)
        config = self._streams.checked(config)
        self._streams.check_room(config)
        if name in self._assets.streams or name in self._restored.names:
            raise Refused(Errors.STREAM_NAME_EXISTS_RESTORE)
        if len(self._receiving) >= RESTORES_MAX:
            raise Refused(Errors.STREAM_RESTORE, err=f"{RESTORES_MAX} restores are under way")
        self._streams.check_overlap(config)
        from .receiving import Receiving

        receiving = Receiving(
            self._context, self._restored, config, request.state.first_seq, self._received
        )
        receiving.client = _describe(call.origin)

        def announced(error: Exception | None) -> None:
            if error is not None:
                self._api.fail(call, error)
            else:
                self._expect(call, receiving)

        self._restored.announce(config, announced)

    def _expect(self, call: Call, receiving: Receiving) -> None:
        """The disk knows that a restore begins: take its chunks."""
        try:
            receiving.start()
        except (StoreError, Refused) as error:
            self._restored.abandon(receiving.config.name)
            if isinstance(error, StoreError):
                self._api.fail(call, error)
            else:
                self._api.refuse(call, error)
            return
        self._receiving[receiving.id] = receiving
        name = receiving.config.name
        subject = f"$JS.SNAPSHOT.RESTORE.{name}.{receiving.id}"
        self._context.advisories.restore_created(name, receiving.client)
        self._api.complete(call, RestoreResponse(deliver_subject=subject))

    def _chunk(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
    ) -> bool | None:
        receiving = self._receiving.get(_token(subject))
        if receiving is None:
            return False
        if receiving.failed is not None:
            self._tell_failed(receiving, [reply])
        else:
            receiving.chunk(reply, payload, origin)
        return None

    def _received(self, receiving: Receiving, error: Exception | None) -> None:
        """All of it is durable, or it is over."""
        if error is not None:
            self._finished(receiving, None, error)
            return
        check = partial(self._streams.check_overlap, receiving.config)
        self._restored.finish(receiving, check, partial(self._finished, receiving))

    def _finished(
        self, receiving: Receiving, info: StreamInfo | None, error: Exception | None
    ) -> None:
        """The stream is there, and the disk knows it; or nothing of it is."""
        context = self._context
        context.advisories.restore_completed(
            receiving.config.name, receiving.started_ns, receiving.client, receiving.nbytes
        )
        if error is None:
            del self._receiving[receiving.id]
            context.bus.publish(receiving.reply, b"", b"", encode_response(_CREATED, info))
            return
        receiving.failed = error
        told = [*receiving.take_owed(), *([receiving.reply] if receiving.reply else ())]
        self._tell_failed(receiving, told)
        # Whoever goes on sending for a while learns why that is of no use.
        later_ns = context.clock.monotonic_ns() + round(RESTORE_IDLE_S * _NS)
        context.timers.call_at(later_ns, partial(self._receiving.__delitem__, receiving.id))

    def _tell_failed(self, receiving: Receiving, replies: list[bytes]) -> None:
        error = receiving.failed
        spec = error.error if isinstance(error, Refused) else Errors.STREAM_RESTORE.with_(err=error)
        body = encode_error(_CREATED, spec)
        for reply in replies:
            if reply:
                self._context.bus.publish(reply, b"", b"", body)


def _describe(origin: Origin | None) -> dict[str, Any] | None:
    return None if origin is None else origin.describe()
