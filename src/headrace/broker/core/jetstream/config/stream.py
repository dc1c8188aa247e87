"""Stream configurations: defaults, validation, and what an update may change.

Texts and error numbers are the public server's; what this server does not do is refused in words.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from .....api.errors import Errors
from .....api.streams import Placement, StreamConfig
from .....errors import InvalidSubjectError
from .....limits import (
    DESCRIPTION_BYTES_MAX,
    DUPLICATE_WINDOW_S_DEFAULT,
    METADATA_BYTES_MAX,
    NAME_CHARS_MAX,
)
from .....pattern_tree import PatternTree, are_apart, check_branches, check_count
from .....quantities import go_duration_text
from .....subjects import is_subset, is_valid_pattern, overlaps
from .....transforms import SubjectTransform
from ...ports import Randomness
from .options import FORBIDDEN_IN_NAMES, JetStreamOptions, Refused, invalid
from .sizes import check_entries, check_lists

_ALL: Final = ">"
_API: Final = (b"$JS.>", b"$JSC.>", b"$NRG.>")
_EVENTS: Final = b"$JS.EVENT.>"
_SYSTEM: Final = b"$SYS.>"
_SYSTEM_ACCOUNTS: Final = b"$SYS.ACCOUNT.>"
_MAY_BE_SYSTEM: Final = (b"$", b"*", b">")  # what a pattern begins with that overlaps any of these
_MIN_AGE_S: Final = 0.1
_MAX_REPLICAS: Final = 5
_DYNAMIC: Final = ("_nats.ver", "_nats.level", "_nats.req.level")
_LIMITS: Final = (
    "max_msgs",
    "max_msgs_per_subject",
    "max_bytes",
    "max_msg_size",
    "max_consumers",
)
"""Of which 0 means none, and -1 is how that is written."""


def _check_schedule_config(config: StreamConfig) -> None:
    """Refuse what does not go together with schedules."""
    if config.allow_msg_schedules and config.discard == "new":
        text = "message scheduling cannot use discard new"
        raise invalid(text)


def _check_counter_config(config: StreamConfig) -> None:
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


def _with_republish_defaults(config: StreamConfig) -> StreamConfig:
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


def check_stream_name(name: str) -> None:
    """Refuse a name that can not be a token of a subject and a directory."""
    if not name or not FORBIDDEN_IN_NAMES.isdisjoint(name):
        raise invalid("stream name is required and can not contain '.', '*', '>', '\\', '/'")
    if len(name) > NAME_CHARS_MAX:
        raise invalid(f"stream name is too long, maximum allowed is {NAME_CHARS_MAX}")


def with_stream_defaults(config: StreamConfig, options: JetStreamOptions) -> StreamConfig:
    """The configuration as it is stored: absent values filled in, dynamic metadata left out."""
    changes: dict[str, object] = {"pedantic": False, "template_owner": ""}
    for name in _LIMITS:
        value = getattr(config, name)
        if value == 0 or value < -1:
            changes[name] = -1
    if config.persist_mode == "default":
        changes["persist_mode"] = ""
    if config.placement == Placement():
        changes["placement"] = None
    if config.num_replicas == 0:
        changes["num_replicas"] = 1
    copies = config.mirror is not None or bool(config.sources)
    if not config.subjects and not copies:
        changes["subjects"] = (config.name,)
    if config.duplicate_window == 0 and not copies:
        window = min(DUPLICATE_WINDOW_S_DEFAULT, options.assets.duplicate_window or math.inf)
        changes["duplicate_window"] = min(window, config.max_age) if config.max_age > 0 else window
    if config.subject_delete_marker_ttl >= 1:
        changes["allow_msg_ttl"] = True
    rolls_up = config.subject_delete_marker_ttl >= 1 or config.allow_msg_schedules
    if rolls_up and not config.allow_rollup_hdrs:
        changes["allow_rollup_hdrs"], changes["deny_purge"] = True, False
    changes["metadata"] = without_dynamic_metadata(config.metadata)
    return _with_republish_defaults(msgspec.structs.replace(config, **changes))


def without_dynamic_metadata(metadata: dict[str, str]) -> dict[str, str]:
    """Metadata without what the server overlays on every answer."""
    return {key: value for key, value in metadata.items() if key not in _DYNAMIC}


def metadata_bytes(metadata: dict[str, str]) -> int:
    """The size of metadata: its keys and values."""
    return sum(len(key.encode()) + len(value.encode()) for key, value in metadata.items())


def check_stream(config: StreamConfig, options: JetStreamOptions) -> None:
    """Refuse a configuration (after defaults) that can not be."""
    check_stream_name(config.name)
    if len(config.description.encode()) > DESCRIPTION_BYTES_MAX:
        raise invalid(f"stream description is too long, maximum allowed is {DESCRIPTION_BYTES_MAX}")
    if metadata_bytes(config.metadata) > METADATA_BYTES_MAX:
        raise invalid(f"stream metadata exceeds maximum size of {METADATA_BYTES_MAX} bytes")
    check_entries(config.metadata)
    check_lists(config)
    if config.num_replicas > _MAX_REPLICAS:
        raise invalid(f"maximum replicas is {_MAX_REPLICAS}")
    if config.num_replicas < 0:
        raise Refused(Errors.REPLICAS_NEGATIVE)
    if config.num_replicas > 1:
        raise Refused(Errors.STREAM_REPLICAS_NOT_SUPPORTED)
    _check_persistence(config)
    _check_times(config, options.assets.duplicate_window)
    _check_discard(config)
    _check_counter_config(config)
    _check_schedule_config(config)
    _check_markers(config)
    _check_subjects(config)
    if config.placement is not None and config.placement.preferred:
        raise invalid("preferred server not permitted in placement")
    _check_size(config, options)


def _check_persistence(config: StreamConfig) -> None:
    """``async`` promises less than we do, and is taken for what it is: a permission."""
    if config.persist_mode != "async":
        return
    if config.storage != "file":
        raise invalid("async persist mode is only supported on file storage")
    if config.allow_atomic:
        raise invalid("async persist mode is not supported with atomic batch publish")


def _check_times(config: StreamConfig, most: float) -> None:
    if config.max_age < 0:
        raise invalid("max age can not be negative")
    if 0 < config.max_age < _MIN_AGE_S:
        raise invalid("max age needs to be >= 100ms")
    if config.duplicate_window < 0:
        raise invalid("duplicates window can not be negative")
    if config.max_age and config.duplicate_window > config.max_age:
        raise invalid("duplicates window can not be larger then max age")
    if 0 < most < config.duplicate_window:
        limit = go_duration_text(round(most * 1e9))
        raise invalid(f"duplicates window can not be larger then server limit of {limit}")
    if 0 < config.duplicate_window < _MIN_AGE_S:
        raise invalid("duplicates window needs to be >= 100ms")


def _check_discard(config: StreamConfig) -> None:
    if config.deny_purge and config.allow_rollup_hdrs:
        raise invalid("roll-ups require the purge permission")
    if config.discard_new_per_subject:
        if config.discard != "new":
            raise invalid("discard new per subject requires discard new policy to be set")
        if config.max_msgs_per_subject <= 0:
            raise invalid("discard new per subject requires max msgs per subject > 0")


def _check_markers(config: StreamConfig) -> None:
    if config.subject_delete_marker_ttl < 0:
        raise invalid("subject delete marker TTL must not be negative")
    if 0 < config.subject_delete_marker_ttl < 1:
        raise invalid("subject delete marker TTL must be at least 1 second")
    if config.subject_delete_marker_ttl and config.mirror is not None:
        raise invalid("subject delete markers forbidden on mirrors")


def _check_subjects(config: StreamConfig) -> None:
    check_count(len(config.subjects))
    patterns = [subject.encode() for subject in config.subjects]
    for pattern in patterns:
        if not is_valid_pattern(pattern):
            raise invalid("invalid subject")
    if not are_apart(patterns):
        _check_apart(patterns)
    if config.no_ack:
        return
    if b">" in patterns:
        raise invalid("capturing all subjects requires no-ack to be true")
    for pattern in patterns:
        if pattern[:1] not in _MAY_BE_SYSTEM:
            continue
        if any(overlaps(pattern, taken) for taken in _API) and not is_subset(pattern, _EVENTS):
            raise invalid("subjects that overlap with jetstream api require no-ack to be true")
        if overlaps(pattern, _SYSTEM) and not is_subset(pattern, _SYSTEM_ACCOUNTS):
            raise invalid("subjects that overlap with system api require no-ack to be true")


def _check_apart(patterns: list[bytes]) -> None:
    """Refuse subjects of which two have something in common."""
    check_branches(patterns)
    tree = PatternTree()
    for pattern in patterns:
        other = tree.overlapping(pattern)
        if other is not None:
            raise invalid(f'subject "{other.decode()}" overlaps with "{pattern.decode()}"')
        tree.add(pattern)


def _check_size(config: StreamConfig, options: JetStreamOptions) -> None:
    if config.storage == "memory":
        if -1 < options.max_memory_bytes < config.max_bytes:
            raise Refused(Errors.MEMORY_RESOURCES_EXCEEDED)
    elif -1 < options.max_storage_bytes < config.max_bytes:
        raise Refused(Errors.STORAGE_RESOURCES_EXCEEDED)


def compile_transform(config: StreamConfig, random: Randomness) -> SubjectTransform | None:
    """The stream's subject transform, or a refusal saying what is wrong with it."""
    rule = config.subject_transform
    if rule is None or (not rule.src and not rule.dest):
        return None
    source = (rule.src or ">").encode()
    if not is_valid_pattern(source):
        raise Refused(Errors.STREAM_TRANSFORM_INVALID_SOURCE, err=f"invalid subject {rule.src}")
    try:
        return SubjectTransform(
            source, rule.dest.encode(), random=lambda n: random.getrandbits(32) % n
        )
    except InvalidSubjectError as error:
        raise Refused(Errors.STREAM_TRANSFORM_INVALID_DESTINATION, err=error) from error


def check_pedantic(config: StreamConfig, options: JetStreamOptions) -> None:
    """Refuse a configuration, as it was asked for, that needs to be set right; texts as nats-server's."""
    for name in _LIMITS:
        if getattr(config, name) < -1:
            raise Refused(Errors.PEDANTIC, err=f"{name} must be set to -1")
    copies = config.mirror is not None or bool(config.sources)
    if (
        0 < options.assets.duplicate_window < DUPLICATE_WINDOW_S_DEFAULT
        and not copies
        and not config.duplicate_window
    ):
        text = "duplicate window limits are higher than current limits"
        raise Refused(Errors.PEDANTIC, err=text)
    short = 0 < config.max_age < DUPLICATE_WINDOW_S_DEFAULT
    if short and not copies and not config.duplicate_window:
        raise Refused(Errors.PEDANTIC, err="duplicate window cannot be bigger than max age")
    if config.subject_delete_marker_ttl >= 1:
        if not config.allow_msg_ttl:
            raise invalid("subject delete marker cannot be set if message TTLs are disabled")
        if not config.allow_rollup_hdrs:
            raise invalid("subject delete marker cannot be set if roll-ups are disabled")
    if config.allow_msg_schedules and not config.allow_rollup_hdrs:
        raise invalid("message scheduling cannot be set if roll-ups are disabled")
    if config.republish is not None and not config.republish.src:
        raise Refused(Errors.PEDANTIC, err="republish source can not be empty")


def check_stream_update(old: StreamConfig, new: StreamConfig) -> None:
    """Refuse an update that changes what can not change."""
    if old.name != new.name:
        raise invalid("stream configuration name must match original")
    if old.storage != new.storage:
        raise invalid("stream configuration update can not change storage type")
    if old.retention != new.retention and "workqueue" in (old.retention, new.retention):
        raise invalid(
            "stream configuration update can not change retention policy to/from workqueue"
        )
    if old.sealed and not new.sealed:
        raise invalid("stream configuration update can not unseal a sealed stream")
    if old.deny_delete and not new.deny_delete:
        raise invalid("stream configuration update can not cancel deny message deletes")
    if old.deny_purge and not new.deny_purge:
        raise invalid("stream configuration update can not cancel deny purge")
    if old.allow_msg_schedules and not new.allow_msg_schedules:
        raise invalid("message schedules can not be disabled")
    if old.allow_msg_counter != new.allow_msg_counter:
        raise invalid("stream configuration update can not change message counter setting")
    if old.persist_mode != new.persist_mode:
        raise invalid("stream configuration update can not change persist mode")
    if old.allow_msg_ttl and not new.allow_msg_ttl:
        raise invalid("message TTL status can not be disabled")


def refuses_when_full(config: StreamConfig) -> bool:
    """Whether a limit of this stream has new messages refused: old ones do not leave for them.

    A bucket without a size discards the new by its word, but has no limit that would.
    """
    return config.discard == "new" and (
        config.max_msgs > 0 or config.max_bytes > 0 or config.discard_new_per_subject
    )
