"""The headers that tell an endpoint about a job."""

from __future__ import annotations

import secrets

from ..models import ClaimedJob, Consumer, Options
from ..signature import sign

__all__ = ["call_headers"]


def call_headers(
    consumer: Consumer, job: ClaimedJob, options: Options, now_s: int
) -> dict[str, str]:
    """The headers of a push call. The producer's headers come first and cannot replace ours."""
    own = {
        "Content-Type": job.content_type,
        "User-Agent": options.user_agent,
        "X-Request-ID": secrets.token_hex(10),
        "X-Broker-Message-ID": job.message_id,
        "X-Broker-Message-Priority": str(job.priority),
        "X-Broker-Channel-ID": consumer.channel_id,
        "X-Broker-Consumer-ID": consumer.consumer_id,
        "X-Broker-Attempt": str(job.retries + 1),
        "X-Broker-Metadata-Headers": ",".join(sorted(job.headers)),
        options.token_header: consumer.token,
    }
    if job.ordering_key is not None:
        own["X-Broker-Ordering-Key"] = job.ordering_key
    if consumer.settings.sign and consumer.secrets:
        # The id is our own number of the message: the producer's id is not ours to sign.
        own |= sign(consumer.secrets, f"msg_{job.message_seq}", now_s, job.payload)
    taken = {name.lower() for name in own}
    given = {name: value for name, value in job.headers.items() if name.lower() not in taken}
    return {**given, **own}
