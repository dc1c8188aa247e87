"""What schedules, counters and republishing ask of a stream's configuration."""

from __future__ import annotations

from typing import Final

import msgspec

from .....api.streams import StreamConfig
from .....errors import InvalidSubjectError
from .....subjects import overlaps
from .....transforms import SubjectTransform
from ...ports.bus import Randomness
from .refused import invalid

_ALL: Final = ">"


def check_schedule_config(config: StreamConfig) -> None:
    """Refuse what does not go together with schedules."""
    if config.allow_msg_schedules and config.discard == "new":
        text = "message scheduling cannot use discard new"
        raise invalid(text)


def check_counter_config(config: StreamConfig) -> None:
    """Refuse what does not go together with counting."""
    if not config.allow_msg_counter:
        return
    if config.discard == "new":
        raise invalid("counter stream cannot use discard new")
    if config.allow_msg_ttl:
        raise invalid("counter stream cannot use message TTLs")
    if config.allow_msg_schedules:
        raise invalid("counter stream cannot use message schedules")
    if config.retention != "limits":
        raise invalid("counter stream can only use limits retention")


def with_republish_defaults(config: StreamConfig) -> StreamConfig:
    """The configuration with the source filled in; ``>`` to ``>`` follows the stream's transform."""
    rule, transform = config.republish, config.subject_transform
    if rule is None:
        return config
    src, dest = rule.src or _ALL, rule.dest
    if src == dest == _ALL and transform is not None and config.subjects == (transform.src,):
        src = dest = transform.dest
    return msgspec.structs.replace(
        config, republish=msgspec.structs.replace(rule, src=src, dest=dest)
    )


def check_republish(config: StreamConfig, random: Randomness) -> None:
    """Refuse a rule that is none, or that feeds the stream with its own messages."""
    rule = config.republish
    if rule is None or not rule.dest:
        return
    dest = rule.dest.encode()
    if any(overlaps(dest, subject.encode()) for subject in config.subjects):
        raise invalid("stream configuration for republish destination forms a cycle")
    compile_republish(config, random)


def compile_republish(config: StreamConfig, random: Randomness) -> SubjectTransform | None:
    """How subjects change on the way out; None if nothing goes out. Raises Refused."""
    rule = config.republish
    if rule is None or not rule.dest:
        return None  # to nowhere, as by nats-server
    try:
        return SubjectTransform(
            rule.src.encode(), rule.dest.encode(), random=lambda n: random.getrandbits(32) % n
        )
    except InvalidSubjectError as error:
        raise invalid(
            f"stream configuration for republish with transform from '{rule.src}' to "
            f"'{rule.dest}' not valid"
        ) from error


def required_level(config: StreamConfig) -> int:
    """0: any server; 1: since 2.11; 2: since 2.12; 4: since 2.14."""
    if config.allow_batched:
        return 4
    if config.allow_msg_counter or config.allow_atomic or config.allow_msg_schedules:
        return 2
    if config.persist_mode == "async":
        return 2
    return 1 if config.allow_msg_ttl or config.subject_delete_marker_ttl > 0 else 0
