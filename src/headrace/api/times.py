"""RFC 3339 times with nanoseconds, as the API writes them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache

from .base import DocumentError

ZERO_TIME = "0001-01-01T00:00:00Z"
"""What Go prints for "never"."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?(?:[Zz]|([+-])(\d\d):(\d\d))"
)


def format_time(timestamp_ns: int) -> str:
    """Nanoseconds since the epoch as RFC 3339 in UTC; 0 is the zero time."""
    if timestamp_ns == 0:
        return ZERO_TIME
    seconds, fraction = divmod(timestamp_ns, 1_000_000_000)
    text = _whole_seconds(seconds)
    if fraction:
        text += "." + f"{fraction:09d}".rstrip("0")
    return text + "Z"


@lru_cache(maxsize=64)  # messages that are sent together were stored within few seconds
def _whole_seconds(seconds: int) -> str:
    moment = _EPOCH + timedelta(seconds=seconds)
    # Not strftime("%Y"): it does not pad years before 1000 on every platform.
    return moment.replace(tzinfo=None).isoformat(timespec="seconds")


def parse_time(text: str) -> int:
    """Nanoseconds since the epoch; the zero time is 0.

    Raises:
        DocumentError: the text is not an RFC 3339 time.
    """
    if text in ("", ZERO_TIME):
        return 0
    found = _TIME.fullmatch(text)
    if found is None:
        raise DocumentError(
            f'parsing time "{text}" as RFC 3339: not of the form 2006-01-02T15:04:05Z'
        )
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    fraction, sign, offset_hours, offset_minutes = found.groups()[6:]
    zone: timezone = UTC
    if sign:
        offset = timedelta(hours=int(offset_hours), minutes=int(offset_minutes))
        zone = timezone(-offset if sign == "-" else offset)
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=zone)
    except ValueError as error:
        raise DocumentError(f'parsing time "{text}" as RFC 3339: {error}') from error
    difference = moment - _EPOCH
    whole_seconds = difference.days * 86_400 + difference.seconds
    return whole_seconds * 1_000_000_000 + int((fraction or "0").ljust(9, "0"))
