"""Every field of a stream and of a consumer, changed while there is something in it: what stays, what comes.

``STREAM_CHANGES`` and ``CONSUMER_CHANGES`` are the fields with the values they are changed to; a test sees to
it that none is missing. Each is played on streams of every policy that keeps or removes messages.
"""

from __future__ import annotations

import json
from typing import Any

from conformance.driver import QUIET_SECONDS, REPLY_SECONDS, Session, Step
from conformance.table import Scenario, Table

_SECOND = 1_000_000_000
_MS = 1_000_000
_SEQUENCES = ("consumer_seq", "stream_seq")

Config = dict[str, Any]

BASES: dict[str, Config] = {
    f"{retention}, discard {discard}, {storage}": {
        "retention": retention,
        "discard": discard,
        "storage": storage,
    }
    for retention, discard, storage in (
        ("limits", "old", "file"),
        ("workqueue", "new", "memory"),
        ("limits", "new", "file"),
        ("workqueue", "old", "memory"),
        ("interest", "old", "memory"),
        ("interest", "new", "memory"),
    )
}
_TWO = tuple(BASES)[:2]
_KEEPING = {  # fields that say what is kept: changed on streams of each kind, the others on two
    *("retention", "max_msgs", "max_bytes", "max_age", "max_msgs_per_subject", "discard"),
    *("discard_new_per_subject", "sealed"),
}
_AGAIN = {"ack_wait", "backoff"}
_ROUNDS = 3  # nats-server counts a new message for its consumer after it has acknowledged it

STREAM_CHANGES: dict[str, list[Config]] = {
    "name": [{"name": "T"}],
    "description": [{"description": "other"}],
    "subjects": [{"subjects": ["s.0", "s.1"]}, {"subjects": ["s.>", "t"]}, {"subjects": ["t"]}],
    "retention": [{"retention": each} for each in ("limits", "interest", "workqueue")],
    "max_consumers": [{"max_consumers": 1}, {"max_consumers": 5}],
    "max_msgs": [{"max_msgs": 5}, {"max_msgs": 20}, {"max_msgs": 0}, {"max_msgs": -1}],
    "max_bytes": [{"max_bytes": 500}, {"max_bytes": 1}, {"max_bytes": 1 << 20}],
    "max_age": [
        {"max_age": 3600 * _SECOND, "duplicate_window": _SECOND},
        {"max_age": 100 * _MS, "duplicate_window": 100 * _MS},
    ],
    "max_msgs_per_subject": [
        {"max_msgs_per_subject": 1},
        {"max_msgs_per_subject": 2},
        {"max_msgs_per_subject": 2, "max_msgs": 4},
        {"max_msgs_per_subject": 2, "max_bytes": 300},
    ],
    "max_msg_size": [{"max_msg_size": 10}],
    "discard": [
        {"discard": "new", "max_msgs": 5},
        {"discard": "old", "max_msgs": 5},
        {"discard": "old", "max_bytes": 500},
    ],
    "storage": [{"storage": "memory"}, {"storage": "file"}],
    "num_replicas": [{"num_replicas": 1}, {"num_replicas": 3}],
    "no_ack": [{"no_ack": True}],
    "duplicate_window": [{"duplicate_window": 100 * _MS}, {"duplicate_window": 0}],
    "placement": [{"placement": {"cluster": "other"}}],
    "mirror": [{"mirror": {"name": "X"}}],
    "sources": [{"sources": [{"name": "S"}]}],
    "compression": [{"compression": "s2"}],
    "first_seq": [{"first_seq": 100}],
    "subject_transform": [{"subject_transform": {"src": "s.*", "dest": "s.{{wildcard(1)}}.x"}}],
    "republish": [{"republish": {"src": "s.>", "dest": "r.>"}}],
    "allow_direct": [{"allow_direct": True}],
    "mirror_direct": [{"mirror_direct": True}],
    "discard_new_per_subject": [
        {"discard_new_per_subject": True},
        {"discard": "new", "discard_new_per_subject": True, "max_msgs_per_subject": 2},
        {"discard": "new", "discard_new_per_subject": True, "max_msgs_per_subject": 9},
    ],
    "sealed": [{"sealed": True}],
    "deny_delete": [{"deny_delete": True}],
    "deny_purge": [{"deny_purge": True}],
    "allow_rollup_hdrs": [{"allow_rollup_hdrs": True}],
    "consumer_limits": [
        {"consumer_limits": {"max_ack_pending": 2}},
        {"consumer_limits": {"max_ack_pending": 5000}},
        {"consumer_limits": {"inactive_threshold": _SECOND}},
    ],
    "allow_msg_ttl": [{"allow_msg_ttl": True}],
    "subject_delete_marker_ttl": [{"subject_delete_marker_ttl": _SECOND}],
    "allow_msg_counter": [{"allow_msg_counter": True}],
    "allow_atomic": [{"allow_atomic": True}],
    "allow_msg_schedules": [{"allow_msg_schedules": True}],
    "allow_batched": [{"allow_batched": True}],
    "persist_mode": [{"persist_mode": "async"}],
    "metadata": [{"metadata": {"a": "b"}}],
    "pedantic": [{"pedantic": True}, {"pedantic": True, "max_msgs": 5}],
}

CONSUMER_CHANGES: dict[str, list[Config]] = {
    "name": [{"name": "D"}],
    "durable_name": [{"durable_name": "D"}],
    "description": [{"description": "other"}],
    "deliver_policy": [{"deliver_policy": each} for each in ("all", "new", "last")],
    "opt_start_seq": [{"deliver_policy": "by_start_sequence", "opt_start_seq": 9}],
    "opt_start_time": [
        {"deliver_policy": "by_start_time", "opt_start_time": "2020-01-01T00:00:00Z"}
    ],
    "ack_policy": [{"ack_policy": each} for each in ("none", "all", "flow_control")],
    "ack_wait": [{"ack_wait": 150 * _MS}, {"ack_wait": 60 * _SECOND}],
    "max_deliver": [{"max_deliver": 1}, {"max_deliver": 9}],
    "backoff": [{"backoff": [150 * _MS, 60 * _SECOND], "max_deliver": 3}],
    "filter_subject": [{"filter_subject": "s.1"}, {"filter_subject": "x"}],
    "filter_subjects": [{"filter_subjects": ["s.1", "s.2"]}],
    "replay_policy": [{"replay_policy": "original"}],
    "rate_limit_bps": [{"rate_limit_bps": 8000}],
    "sample_freq": [{"sample_freq": "100%"}],
    "max_waiting": [{"max_waiting": 1}],
    "max_ack_pending": [{"max_ack_pending": 1}, {"max_ack_pending": 6}, {"max_ack_pending": -1}],
    "headers_only": [{"headers_only": True}],
    "max_batch": [{"max_batch": 2}, {"max_batch": 50}],
    "max_expires": [{"max_expires": _SECOND}],
    "max_bytes": [{"max_bytes": 50}],
    "inactive_threshold": [{"inactive_threshold": 60 * _SECOND}],
    "num_replicas": [{"num_replicas": 1}, {"num_replicas": 3}],
    "mem_storage": [{"mem_storage": True}],
    "metadata": [{"metadata": {"a": "b"}}],
    "pause_until": [{"pause_until": "2020-01-01T00:00:00Z"}],
    "flow_control": [{"flow_control": True}],
    "idle_heartbeat": [{"idle_heartbeat": _SECOND}],
    "deliver_subject": [{"deliver_subject": "d"}],
    "deliver_group": [{"deliver_group": "q"}],
    "priority_groups": [{"priority_groups": ["g"], "priority_policy": "overflow"}],
    "priority_policy": [{"priority_policy": "none"}],
    "direct": [{"direct": True}],
    "sourcing": [{"sourcing": True}],
    "priority_timeout": [{"priority_timeout": _SECOND}],
}


def _call(
    session: Session, subject: str, body: object = b"", timeout: float = REPLY_SECONDS
) -> dict[str, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    wire, inbox = session.wire("set-up"), session.inbox("set-up")
    session.publish("set-up", subject.encode(), inbox, b"", data)
    while (frame := wire.frame(timeout)) is not None and frame[1] != inbox:
        pass  # what came late, of a call before
    if frame is None or frame[0] == b"HMSG":
        return {"error": {"description": frame[4].split(b"\r\n")[0].decode() if frame else "-"}}
    answer: dict[str, Any] = json.loads(frame[5] or b"{}")
    return answer


def _said(answer: dict[str, Any]) -> str:
    error = answer.get("error")
    return f"{error.get('err_code')} {error.get('description')}" if error else "done"


_PATIENT_S = 5.0  # for what surely comes, however busy the machine is


def _fetched(session: Session, stream: str, most: int, wait: float = QUIET_SECONDS) -> list[bytes]:
    """Pull so many; notes each sequence and how often it was delivered. The ack subjects."""
    got, acks = _pulled(session, stream, most, wait)
    session.note(f"delivered: {got}")
    return acks


def _pulled(session: Session, stream: str, most: int, wait: float) -> tuple[list[str], list[bytes]]:
    if not most:
        return [], []
    wire, inbox = session.wire("set-up"), session.inbox("set-up")
    target = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.C".encode()
    session.publish("set-up", target, inbox, b"", b'{"batch":%d,"expires":%d}' % (most, _SECOND))
    got: list[str] = []
    acks: list[bytes] = []
    while len(acks) < most and (frame := wire.frame(wait)) is not None:
        if not frame[3].startswith(b"$JS.ACK."):
            got.append((frame[4] or b"?").split(b"\r\n")[0].decode())
            break
        deliveries, sequence = frame[3].split(b".")[-5:-3]
        acks.append(frame[3])
        got.append(f"{sequence.decode()}×{deliveries.decode()}")
    return got, acks


def _fetched_all(session: Session, stream: str, change: Config) -> None:
    """Pull everything there is, with what comes again where the change asks for that."""
    again = not _AGAIN.isdisjoint(change)
    delivered: list[str] = []
    for _ in range(_ROUNDS):
        info = _call(session, f"$JS.API.CONSUMER.INFO.{stream}.C")
        most = info.get("num_pending", 0)
        if again and not delivered:
            most += info["num_ack_pending"]
        got, acks = _pulled(session, stream, most, 0.5 if again else QUIET_SECONDS)
        delivered += got
        if not acks:
            break
    session.note(f"delivered: {delivered}")


def _state(session: Session, stream: str) -> None:
    info = _call(session, f"$JS.API.STREAM.INFO.{stream}", {"deleted_details": True})
    if "error" in info:
        session.note(f"stream: {_said(info)}")
        return
    state = info["state"]
    gone = set(state.get("deleted") or ())
    there = [n for n in range(state["first_seq"], state["last_seq"] + 1) if n not in gone]
    left = there if state["messages"] else []
    names = ("messages", "bytes", "first_seq", "last_seq")
    session.note(f"stream: {left}, {[state[name] for name in names]}")
    info = _call(session, f"$JS.API.CONSUMER.INFO.{stream}.C")
    if "error" in info:
        session.note(f"consumer: {_said(info)}")
        return
    counts = [info[name] for name in ("num_pending", "num_ack_pending", "num_redelivered")]
    places = [info[of][seq] for of in ("delivered", "ack_floor") for seq in _SEQUENCES]
    session.note(f"consumer: {counts}, delivered and acknowledged to {places}")


def _published(session: Session, *subjects: str, size: int = 40, silent: bool = False) -> None:
    wait = 0.02 if silent else REPLY_SECONDS
    answers = [_call(session, subject, b"x" * size, wait) for subject in subjects]
    session.note(f"published: {[each.get('seq') or _said(each) for each in answers]}")


def _filled(session: Session, stream: str, base: Config) -> Config:
    """A stream of twenty messages on four subjects; of five that its consumer got, one is acknowledged."""
    config = {"name": stream, "subjects": [f"{stream}.>"], **base}
    made = _call(session, f"$JS.API.STREAM.CREATE.{stream}", config)
    consumer = {"durable_name": "C", "ack_policy": "explicit", "ack_wait": 30 * _SECOND}
    document = {"stream_name": stream, "config": consumer}
    _call(session, f"$JS.API.CONSUMER.CREATE.{stream}.C", document)
    wire, inbox = session.wire("set-up"), session.inbox("set-up")
    for number in range(20):
        subject = f"{stream}.{number % 4}".encode()
        session.publish("set-up", subject, inbox, b"", b"x" * (40 + number))
    for _ in range(20):
        wire.frame()
    session.note(f"made: {_said(made)}")
    acks = _fetched(session, stream, 5, _PATIENT_S)
    _call(session, acks[1].decode(), b"+ACK")
    found = _call(session, f"$JS.API.STREAM.INFO.{stream}")["config"]
    return {name: value for name, value in found.items() if name != "metadata"}


def _renamed(change: Any, stream: str) -> Any:
    """``s`` and ``S`` in a change stand for the stream."""
    text = json.dumps(change).replace('"s.', f'"{stream}.').replace('"S"', f'"{stream}"')
    return json.loads(text.replace('"t"', f'"t{stream}"').replace('"r.', f'"r{stream}.'))


def _changed_stream(stream: str, base: str, change: Config) -> Step:
    def step(session: Session) -> None:
        session.note(f"-- {base}: {change}")
        config = _filled(session, stream, BASES[base])
        wanted = {**config, **_renamed(change, stream)}
        answer = _call(session, f"$JS.API.STREAM.UPDATE.{stream}", wanted)
        session.note(f"changed: {_said(answer)}")
        if change.get("max_age", _SECOND) < _SECOND:
            session.read_until_quiet("set-up", 0.5)  # everything is older then, and gone
            _state(session, stream)
            return
        _state(session, stream)
        silent = "no_ack" in change
        _published(session, f"{stream}.0", f"{stream}.new", f"{stream}.1", silent=silent)
        _published(session, f"{stream}.2", size=80, silent=silent)
        _fetched_all(session, stream, change)
        _state(session, stream)
        _call(session, f"$JS.API.STREAM.DELETE.{stream}")

    return step


def _changed_consumer(stream: str, base: str, change: Config) -> Step:
    def step(session: Session) -> None:
        session.note(f"-- {base}: {change}")
        _filled(session, stream, BASES[base])
        found = _call(session, f"$JS.API.CONSUMER.INFO.{stream}.C")["config"]
        wanted = {**found, **_renamed(change, stream)}
        wanted.pop("metadata", None)
        document = {"stream_name": stream, "action": "update", "config": wanted}
        answer = _call(session, f"$JS.API.CONSUMER.CREATE.{stream}.C", document)
        session.note(f"changed: {_said(answer)}")
        _state(session, stream)
        _published(session, f"{stream}.0", f"{stream}.1")
        _fetched_all(session, stream, change)
        _state(session, stream)
        _call(session, f"$JS.API.STREAM.DELETE.{stream}")

    return step


def _scenarios(kind: str, changes: dict[str, list[Config]], made: Any) -> Table:
    table: Table = []
    for field, values in changes.items():
        steps = [
            made(f"s{index}x{number}", base, change)
            for index, base in enumerate(BASES if field in _KEEPING else _TWO)
            for number, change in enumerate(values)
        ]
        table.append(Scenario(f"changed: {kind} {field}", steps))
    return table


TABLE: Table = [
    *_scenarios("stream", STREAM_CHANGES, _changed_stream),
    *_scenarios("consumer", CONSUMER_CHANGES, _changed_consumer),
]
