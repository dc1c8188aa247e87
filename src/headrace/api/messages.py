"""Messages: publish acknowledgements, and reading one stored message."""

from __future__ import annotations

from typing import ClassVar

from .base import Document, fields


class PubAck(Document, frozen=True, kw_only=True):
    """The stream has the message on disk. ``duplicate``: it already had it, under ``seq``."""

    always = ("stream", "seq")

    stream: str = ""
    seq: int = 0
    domain: str = ""
    duplicate: bool = False
    batch: str = ""
    count: int = 0
    val: str = ""


class GetMessageRequest(Document, frozen=True, kw_only=True):
    """Body of STREAM.MSG.GET: one of ``seq``, ``last_by_subj``, ``next_by_subj``, ``start_time``."""

    seq: int = 0
    last_by_subj: str = ""
    next_by_subj: str = ""
    start_time: str | None = None
    no_hdr: bool = False
    batch: int = 0
    max_bytes: int = 0
    multi_last: tuple[str, ...] = ()
    up_to_seq: int = 0
    up_to_time: str | None = None


class DirectGetRequest(GetMessageRequest, frozen=True, kw_only=True):
    """Body of DIRECT.GET: the same fields; here the batch fields apply."""


class StoredMessageDocument(Document, frozen=True, kw_only=True):
    """A stored message in JSON: ``hdrs`` and ``data`` are base64."""

    always = ("subject", "seq", "time")

    subject: str = ""
    seq: int = 0
    hdrs: str = ""
    data: str = ""
    time: str = ""


class GetMessageResponse(Document, frozen=True, kw_only=True):
    """Answer to STREAM.MSG.GET."""

    always = ("message",)

    message: StoredMessageDocument = StoredMessageDocument()


class MessageDeleteRequest(Document, frozen=True, kw_only=True):
    """Body of STREAM.MSG.DELETE; ``no_erase`` skips overwriting the bytes."""

    always = ("seq",)

    seq: int = 0
    no_erase: bool = False


class SuccessResponse(Document, frozen=True, kw_only=True):
    """The answer to a call that only succeeds."""

    always = ("success",)

    success: bool = True


class AccountLimits(Document, frozen=True, kw_only=True):
    """What an account may use; −1 for no limit."""

    always = fields(
        "max_memory max_storage max_streams max_consumers max_ack_pending memory_max_stream_bytes "
        "storage_max_stream_bytes max_bytes_required"
    )

    max_memory: int = -1
    max_storage: int = -1
    max_streams: int = -1
    max_consumers: int = -1
    max_ack_pending: int = -1
    memory_max_stream_bytes: int = -1
    storage_max_stream_bytes: int = -1
    max_bytes_required: bool = False


class ApiStats(Document, frozen=True, kw_only=True):
    """Counts of API requests."""

    always = ("level", "total", "errors")

    level: int = 0
    total: int = 0
    errors: int = 0
    inflight: int = 0


class AccountTier(Document, frozen=True, kw_only=True):
    """Usage and limits of an account for one tier: the streams with a given number of replicas."""

    always = fields("memory storage reserved_memory reserved_storage streams consumers limits")

    memory: int = 0
    storage: int = 0
    reserved_memory: int = 0
    reserved_storage: int = 0
    streams: int = 0
    consumers: int = 0
    limits: AccountLimits = AccountLimits()


class AccountInfo(AccountTier, frozen=True, kw_only=True):
    """Usage and limits of an account, for all tiers together; sizes in bytes."""

    always: ClassVar[tuple[str, ...]] = (*AccountTier.always, "api")

    domain: str = ""
    api: ApiStats = ApiStats()
    tiers: dict[str, AccountTier] = {}
