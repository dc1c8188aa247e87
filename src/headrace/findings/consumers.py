"""Findings about a consumer: nobody asks, nothing is answered, one message comes for ever. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from ..api.consumers import ConsumerInfo, SequenceInfo
from ..api.roles import feeds_channel, shows_progress
from ..quantities import counted, duration_text, moment_of
from .finding import Findings

IDLE_S: Final = 300.0
"""Time without a request, though messages wait, after which nobody works there. Some fetch now and then."""

LEFT_S: Final = 60.0
"""Messages were handed out and neither answered nor asked about for so long, and longer than ``ack_wait``:
whoever had them is gone, or hangs."""

AGAIN_MIN: Final = 10
"""Deliveries in excess of the messages delivered, from which on the oldest one is taken for the cause."""


def judge_consumer(findings: Findings, consumer: ConsumerInfo, now: datetime) -> None:
    """Judge one consumer."""
    config, stream, name = consumer.config, consumer.stream_name, consumer.name
    what = f"consumer {stream} > {name}"
    most = config.max_ack_pending
    if consumer.paused:
        text = f"paused for {duration_text(consumer.pause_remaining)} more, {consumer.num_pending:,} waiting"
        findings.note(
            what,
            text,
            f"headrace consumer resume {stream} {name}",
            name="paused",
            waiting=consumer.num_pending,
        )
        return
    channel = feeds_channel(config.metadata)
    if channel is not None:
        _judge_feed(findings, consumer, channel, now)
        return
    _judge_poison(findings, consumer)
    idle_s = _unpulled_s(consumer, now)
    if idle_s:
        _nobody_pulls(findings, consumer, idle_s)
        return  # and so as many as allowed are unanswered
    if most > 0 and consumer.num_ack_pending >= most and consumer.num_pending:
        text = f"{counted(most, 'message')} without an answer, as many as allowed: it stands still"
        mend = f"headrace consumer edit {stream} {name} --max-pending {most * 2}"
        findings.problem(
            what,
            text,
            f"acknowledge them, or: {mend}",
            name="unanswered",
            since=_moment_text(consumer.ack_floor),
            unanswered=consumer.num_ack_pending,
            limit=most,
            waiting=consumer.num_pending,
        )
    if config.deliver_subject and consumer.num_pending and not consumer.push_bound:
        if not config.durable_name:
            return  # it removes itself: a client that left has left it
        waiting = counted(consumer.num_pending, "message")
        findings.problem(
            what,
            f"nobody listens on {config.deliver_subject}, {waiting} waiting",
            f"start who handles them; headrace consumer info {stream} {name}",
            name="nobody-listens",
            since=_last_text(consumer),
            waiting=consumer.num_pending,
        )


def _unpulled_s(consumer: ConsumerInfo, now: datetime) -> float:
    """Seconds that nobody has asked a pull consumer for what it has; 0 where somebody has, or may yet.

    ``num_ack_pending`` is no sign of life: deliveries that were never answered stay in it. The signs are
    a waiting request, the last delivery, and the last acknowledgement.
    """
    config, in_hand = consumer.config, consumer.num_ack_pending
    if config.deliver_subject or consumer.num_waiting or shows_progress(config.metadata):
        return 0.0
    if not consumer.num_pending and not in_hand:
        return 0.0
    if not config.durable_name and config.inactive_threshold:
        return 0.0  # it removes itself
    idle_s = (now - moment_of(_last_text(consumer))).total_seconds()
    patience_s = IDLE_S
    if in_hand and config.ack_policy != "none":
        # A handler may have until then; backoffs stand in the place of ``ack_wait``.
        patience_s = max(LEFT_S, config.ack_wait, *config.backoff)
    return idle_s if idle_s > patience_s else 0.0


def _nobody_pulls(findings: Findings, consumer: ConsumerInfo, idle_s: float) -> None:
    waiting, in_hand = counted(consumer.num_pending, "message"), consumer.num_ack_pending
    text = f"nobody has pulled for {duration_text(idle_s)}, {waiting} waiting"
    if in_hand:
        text += f", {in_hand:,} handed out and not answered"
    findings.problem(
        f"consumer {consumer.stream_name} > {consumer.name}",
        text,
        f"start who handles them; headrace consumer info {consumer.stream_name} {consumer.name}",
        name="nobody-pulls",
        since=_last_text(consumer),
        waiting=consumer.num_pending,
        unanswered=in_hand,
        idle_s=round(idle_s, 3),
    )


def _judge_feed(findings: Findings, consumer: ConsumerInfo, channel: str, now: datetime) -> None:
    """Tell the place and the lag of a consumer by which a job service makes jobs of messages."""
    what = f"consumer {consumer.stream_name} > {consumer.name}"
    text = (
        f"feeds the channel {channel} of a job service: up to sequence {consumer.ack_floor.stream_seq:,}, "
        f"{counted(consumer.num_pending, 'message')} to come"
    )
    idle_s = _unpulled_s(consumer, now)
    if not idle_s:
        findings.ok(what, text)
        return
    findings.problem(
        what,
        f"{text}; nobody has pulled for {duration_text(idle_s)}",
        f"headrace jobs feed {channel}    says what it waits for",
        name="feed-stands",
        since=_last_text(consumer),
        waiting=consumer.num_pending,
        idle_s=round(idle_s, 3),
    )


def _judge_poison(findings: Findings, consumer: ConsumerInfo) -> None:
    """Tell of the oldest message that is not done, where deliveries far exceed messages."""
    config, delivered, floor = consumer.config, consumer.delivered, consumer.ack_floor
    # nats-server goes on counting those that it has given up as redelivered, though nobody gets them again.
    redelivered = min(consumer.num_redelivered, consumer.num_ack_pending)
    if config.ack_policy != "explicit" or not redelivered:
        return
    # Between the floors each message counts once in the stream, and each delivery in the consumer.
    again = (delivered.consumer_seq - floor.consumer_seq) - (
        delivered.stream_seq - floor.stream_seq
    )
    if again < AGAIN_MIN * redelivered:
        return
    stream, name, sequence = consumer.stream_name, consumer.name, floor.stream_seq + 1
    times = again // redelivered
    findings.problem(
        f"consumer {stream} > {name}",
        f"message {sequence:,}, or the next one for it, has come {times:,} times more than once: its handler "
        "fails each time",
        f"headrace stream get {stream} {sequence}    and: headrace consumer edit {stream} {name} "
        "--max-deliver N",
        name="poison-message",
        since=_moment_text(floor),
        sequence=sequence,
        deliveries=times + 1,
        redelivered=redelivered,
    )


def _last_text(consumer: ConsumerInfo) -> str:
    """Time at which something last happened there: the creation, a delivery, an acknowledgement."""
    times = [_moment_text(each) for each in (consumer.delivered, consumer.ack_floor)]
    return max([consumer.created, *filter(None, times)], key=moment_of)


def _moment_text(place: SequenceInfo) -> str:
    """Time at which a place last moved; "" for never."""
    last = place.last_active or ""
    return "" if last.startswith("0001") else last
