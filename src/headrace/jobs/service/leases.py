"""Jobs that a worker holds: claimed, kept, finished, and taken back when their leases expire.

Every claim has a new lease token. An old one gets ``lease_lost`` (409) for that item; the other items of the
batch are carried out. The specification's pull consumption is here, too: a list that claims nothing, and one
move of one job at a time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from .. import ids, limits
from ..errors import JobsError, bad_request
from ..models import ClaimedJob, Consumer, Options, rfc3339
from ..retry_policy import retry_delay_s
from ..states import Event, State, failure_event, requested_event
from ..store import Outcome, Row, Tx
from .definitions.consumers import authorised_consumer, authorised_pull_consumer
from .moves import Move, apply_moves, load, note_attempts, storable
from .removed_jobs import missing

__all__ = [
    "Caller",
    "Claim",
    "Ending",
    "Endings",
    "Held",
    "Result",
    "Swept",
    "Who",
    "change_state",
    "check_batch",
    "claim_all",
    "completed",
    "consumers_of",
    "deadline_text",
    "describe",
    "end",
    "end_all",
    "expire_leases",
    "failed",
    "heartbeat",
    "is_held",
    "job_of_consumer",
    "lease_all",
    "list_queued",
    "pull_timeout_s",
    "released",
]


_SECOND_US: Final = 1_000_000
_NO_LIMIT: Final = 2**62

Who = Callable[[Tx], Consumer]
"""Finds the consumer whose jobs are meant; raises JobsError for who may not have them."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Worker of a consumer, as it says of itself, with its tokens."""

    channel_id: str
    consumer_id: str
    channel_token: str
    consumer_token: str
    granted: bool = False

    def consumer(self, tx: Tx) -> Consumer:
        """The consumer; see :func:`..definitions.consumers.authorised_pull_consumer` for what is refused."""
        return authorised_pull_consumer(tx, *self._named(), granted=self.granted)

    def holder(self, tx: Tx) -> Consumer:
        """The consumer of leased jobs. One that became a push consumer finishes those that it has."""
        return authorised_consumer(tx, *self._named(), granted=self.granted)

    def _named(self) -> tuple[str, str, str, str]:
        return self.channel_id, self.consumer_id, self.channel_token, self.consumer_token


@dataclass(frozen=True, slots=True)
class Claim:
    """Wish for up to ``n`` jobs of a consumer, for ``lease_s`` seconds."""

    who: Who
    n: int
    lease_s: float


def consumers_of(tx: Tx, who: Sequence[Who]) -> tuple[dict[int, Outcome], dict[int, Consumer]]:
    """The outcomes of those who are refused, and the consumers of the others, by place."""
    outcomes, consumers = {}, {}
    for place, find in enumerate(who):
        try:
            consumers[place] = find(tx)
        except JobsError as error:
            outcomes[place] = Outcome(error=error)
    return outcomes, consumers


def claim_all(tx: Tx, claims: Sequence[Claim]) -> list[Outcome]:
    """Lease ready jobs: for each claim its consumer, and up to ``n`` jobs.

    The highest priority goes first, and within a priority the oldest; who came first gets the first. The jobs
    of one claim have about ``CLAIM_BYTES_MAX`` of payload at most: fewer than ``n`` may be given where more
    are ready.

    Nothing is claimed if the definition has changed since the consumer was read: ``n`` may be by a limit that
    no longer holds, and the consumer may be paused. Whoever changes it rings for those who wait for its jobs.
    """
    now = tx.now_us()
    outcomes, consumers = consumers_of(tx, [claim.who for claim in claims])
    groups: dict[tuple[int, int], list[int]] = {}
    for place, consumer in consumers.items():
        groups.setdefault((consumer.seq, consumer.updated_us), []).append(place)
    given: dict[int, list[Row]] = {}
    for places in groups.values():
        given |= _share(tx, consumers[places[0]], {place: claims[place].n for place in places}, now)
    leases = {place: ids.new_lease() for place in given}
    ends = {place: now + round(claims[place].lease_s * _SECOND_US) for place in given}
    moves = [
        Move(row=row, event=Event.CLAIM, lease=leases[place], lease_expires_us=ends[place])
        for place, rows in given.items()
        for row in rows
    ]
    apply_moves(tx, moves, now)
    payloads = _payloads(tx, [move.row for move in moves])
    for place, rows in given.items():
        lease, end = leases[place], ends[place]
        jobs = [_claimed(row, payloads, lease, end) for row in rows]
        outcomes[place] = Outcome((consumers[place], jobs))
    return [outcomes[place] for place in range(len(claims))]


def _share(tx: Tx, consumer: Consumer, wanted: dict[int, int], now: int) -> dict[int, list[Row]]:
    """The ready jobs of a consumer that each claim gets, by its place. ``wanted``: how many at most."""
    given: dict[int, list[Row]] = {place: [] for place in wanted}
    if consumer.paused or consumer.disabled_us is not None:
        return given
    tx.run("promote_due", consumer_seq=consumer.seq, now=now, n=limits.SWEEP_ROWS)
    n = sum(wanted.values())
    rows = iter(
        tx.all(
            "ready_jobs",
            consumer_seq=consumer.seq,
            version=consumer.updated_us,
            n=n,
            bytes=limits.CLAIM_BYTES_MAX // n if n > 1 else _NO_LIMIT,
        )
    )
    for place, most in wanted.items():
        total = 0
        while len(given[place]) < most and total < limits.CLAIM_BYTES_MAX:
            row = next(rows, None)
            if row is None:
                return given
            given[place].append(row)
            total += row["size"]
    return given


def _payloads(tx: Tx, rows: Sequence[Row]) -> dict[int, bytes]:
    """The payloads that were too large to be read with their jobs, by the number of the message."""
    missing = [row["message_seq"] for row in rows if row["payload"] is None]
    if not missing:
        return {}
    found = tx.all("messages_of", seqs=json.dumps(missing), bytes=_NO_LIMIT)
    return {row["seq"]: row["payload"] for row in found}


def _claimed(row: Row, payloads: dict[int, bytes], lease: str, expires: int) -> ClaimedJob:
    payload = row["payload"]
    return ClaimedJob(
        seq=row["seq"],
        lease=lease,
        deadline_us=expires,
        attempt=row["claims"] + 1,
        retries=row["retries"],
        priority=row["priority"],
        created_us=row["created_us"],
        message_seq=row["message_seq"],
        message_id=row["message_id"],
        payload=payloads[row["message_seq"]] if payload is None else payload,
        content_type=row["content_type"],
        headers=_headers(row["headers"]),
        ordering_key=row["ordering_key"],
    )


def _headers(text: str) -> dict[str, str]:
    return {} if text == "{}" else msgspec.json.decode(text, type=dict[str, str])


class Held(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job and the lease under which the caller believes to hold it; ``progress`` is JSON to be shown."""

    seq: int
    lease: str
    progress: str | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """End of a leased job: made by :func:`completed`, :func:`failed` and :func:`released`.

    Attributes:
        held: the job.
        event: COMPLETE, RELEASE, BURY, or RETRY, which is EXHAUST if no retry is left.
        due_s: when it may be handed out again; None: at once, or when the consumer's schedule says.
        retry_after_s: what lengthens that schedule.
        noted: whether a failure is added to the job's attempts.
    """

    held: Held
    event: Event
    reason: str | None = None
    due_s: float | None = None
    retry_after_s: float | None = None
    noted: bool = True


def completed(held: Held) -> Ending:
    """The job was done."""
    return Ending(held, Event.COMPLETE)


def failed(
    held: Held,
    reason: str,
    *,
    retry_in_s: float | None = None,
    retry_after_s: float | None = None,
    dead: bool = False,
    noted: bool = True,
) -> Ending:
    """The job failed.

    ``retry_in_s`` overrides the consumer's schedule; ``retry_after_s`` may lengthen it; ``dead`` gives up.
    ``noted`` adds an attempt to the job; push says more about its own.
    """
    event = Event.BURY if dead else Event.RETRY
    return Ending(held, event, reason, retry_in_s, retry_after_s, noted)


def released(held: Held, delay_s: float) -> Ending:
    """The job is given back undone; this does not count as a retry."""
    return Ending(held, Event.RELEASE, due_s=delay_s)


@dataclass(frozen=True, slots=True)
class Endings:
    """Ends of jobs of a consumer, each named once. ``random`` is for delays of retries."""

    who: Who
    jobs: Sequence[Ending]
    random: Callable[[], float]


class Result(msgspec.Struct, frozen=True):
    """The result of one item: ``ok``, ``lease_lost``, ``cancelled`` (409), ``not_found`` (404), …"""

    seq: int
    status: int
    code: str
    state: State | None = None
    due_us: int | None = None
    repeated: bool = False  # it was said, and done, before
    cancelled: bool = False  # the claim ended, and so did the job


def lease_all(tx: Tx, items: Sequence[Claim | Endings]) -> list[Outcome]:
    """Do what workers ask at once, in one transaction: :func:`end_all`, then :func:`claim_all`.

    Endings lock ordering keys, after which a claim waits for nobody.
    """
    outcomes: dict[int, Outcome] = {}
    endings = {place: item for place, item in enumerate(items) if isinstance(item, Endings)}
    claims = {place: item for place, item in enumerate(items) if isinstance(item, Claim)}
    if endings:
        outcomes |= zip(endings, end_all(tx, list(endings.values())), strict=True)
    if claims:
        outcomes |= zip(claims, claim_all(tx, list(claims.values())), strict=True)
    return [outcomes[place] for place in range(len(items))]


def end_all(tx: Tx, items: Sequence[Endings]) -> list[Outcome]:
    """End leased jobs: for each its consumer and the results, in the order of its jobs."""
    outcomes, consumers = consumers_of(tx, [item.who for item in items])
    places = list(consumers)
    results = end(
        tx,
        [(consumers[place], items[place].jobs, items[place].random) for place in places],
        tx.now_us(),
    )
    for place, found in zip(places, results, strict=True):
        outcomes[place] = Outcome((consumers[place], found))
    return [outcomes[place] for place in range(len(items))]


def end(
    tx: Tx, asked: Sequence[tuple[Consumer, Sequence[Ending], Callable[[], float]]], now: int
) -> list[list[Result]]:
    """End leased jobs of some consumers; the results of each, in the order of its jobs.

    Completing and failing again under the same lease is ``ok`` again, with the first result, until the job is
    claimed again.
    """
    rows = load(tx, (ending.held.seq for _, endings, _ in asked for ending in endings))
    moves: dict[int, tuple[Ending, Move]] = {}
    for consumer, endings, random in asked:
        for ending in endings:
            row = rows.get(ending.held.seq)
            if row is not None and row["seq"] not in moves and _holds(consumer, ending.held, row):
                moves[row["seq"]] = ending, _move(consumer, ending, row, now, random)
    wanted = any(consumer.settings.outcomes for consumer, _, _ in asked)
    states = dict(
        zip(
            moves,
            apply_moves(tx, [move for _, move in moves.values()], now, outcomes=wanted),
            strict=True,
        )
    )
    note_attempts(
        tx,
        [
            _attempt(ending, move.row, now)
            for ending, move in moves.values()
            if ending.reason is not None and ending.noted
        ],
    )
    done = {id(ending) for ending, _ in moves.values()}
    # One that was named by another, too, is looked at as it is by now.
    left = _states(
        tx, [one.held for _, endings, _ in asked for one in endings if id(one) not in done]
    )
    return [
        [
            _ended(moves[one.held.seq][1], states[one.held.seq])
            if id(one) in done
            else _ended_before(consumer, one, left.get(one.held.seq))
            for one in endings
        ]
        for consumer, endings, _ in asked
    ]


def _move(
    consumer: Consumer, ending: Ending, row: Row, now: int, random: Callable[[], float]
) -> Move:
    event, due_s = ending.event, ending.due_s
    if event is Event.RETRY:
        event = failure_event(row["retries"], consumer.max_retries)
        if event is Event.RETRY and due_s is None:
            retries, after_s = row["retries"] + 1, ending.retry_after_s
            due_s = retry_delay_s(consumer.settings.retry, retries, random, after_s)
    is_queued = event in {Event.RETRY, Event.RELEASE}
    return Move(
        row=row,
        event=event,
        due_us=now + round((due_s or 0.0) * _SECOND_US) if is_queued else None,
        error=ending.reason,
        keeps_lease=event is not Event.RELEASE,  # so that its end is known when it is said again
    )


def _ended(move: Move, state: State) -> Result:
    due_us = move.due_us if state is State.QUEUED else None
    is_cancelled = state is State.DEAD and move.row["cancelled_us"] is not None
    return Result(move.row["seq"], 200, "ok", state, due_us, cancelled=is_cancelled)


def _ended_before(consumer: Consumer, ending: Ending, row: Row | None) -> Result:
    """The result of an ending that was reported before, or a refusal."""
    if ending.event is Event.COMPLETE:
        return _refused(consumer, ending.held, row, State.DELIVERED)
    if ending.event is not Event.RELEASE:
        for state in (State.QUEUED, State.DEAD):
            result = _refused(consumer, ending.held, row, state)
            if result.repeated and row is not None:
                due_us = row["due_us"] if state is State.QUEUED else None
                return msgspec.structs.replace(result, due_us=due_us)
    return _refused(consumer, ending.held, row, None)


def _attempt(ending: Ending, row: Row, now: int) -> dict[str, Any]:
    """A failure as a row of the attempts of its job."""
    return {
        "job_seq": row["seq"],
        "number": row["claims"],
        "kind": "pull",
        "started_us": row["lease_started_us"],
        "duration_us": max(0, now - row["lease_started_us"]),
        "status": 0,
        "error": None if ending.reason is None else storable(ending.reason),
        "excerpt": None,
    }


def heartbeat(
    tx: Tx, consumer: Consumer, items: Sequence[Held], lease_s: float, now: int
) -> list[Result]:
    """Move the deadlines to ``lease_s`` from now, never past the ceiling counted from the claim.

    Progress that comes with an item replaces what was told before.
    """
    rows = tx.all(
        "heartbeat_jobs",
        consumer_seq=consumer.seq,
        items=_items(items),
        expires=now + round(lease_s * _SECOND_US),
        total=round(limits.LEASE_TOTAL_S_MAX * _SECOND_US),
        now=now,
    )
    deadlines = {row["seq"]: row["lease_expires_us"] for row in rows}
    states = _states(tx, [item for item in items if item.seq not in deadlines])
    results = []
    for item in items:
        if item.seq in deadlines:
            results.append(Result(item.seq, 200, "ok", State.INFLIGHT, deadlines[item.seq]))
            continue
        row = states.get(item.seq)
        if row is not None and _holds(consumer, item, row):
            code = "lease_ceiling" if row["cancelled_us"] is None else "cancelled"
            results.append(Result(item.seq, 409, code, State.INFLIGHT))
        else:
            results.append(_refused(consumer, item, row, None))
    return results


def check_batch(count: int) -> None:
    """Refuse an empty batch, and one that is too large (400)."""
    if not 1 <= count <= limits.BATCH_MAX:
        raise bad_request("invalid_batch", f"1 to {limits.BATCH_MAX} jobs are accepted", "jobs")


def describe(result: Result) -> str | None:
    """A sentence for a rejected item."""
    return {
        "ok": None,
        "lease_lost": "the lease is over: the job was given to another, finished, or sent back",
        "cancelled": "the job was cancelled: stop, and release it",
        "invalid_lease": "a lease is what the claim gave",
        "lease_ceiling": f"a lease cannot be extended past {limits.LEASE_TOTAL_S_MAX:g} s in total",
        "not_found": "the consumer has no such job",
    }[result.code]


def deadline_text(us: int | None) -> str | None:
    """RFC 3339, or an empty string."""
    return None if us is None else rfc3339(us)


def _holds(consumer: Consumer, item: Held, row: Row) -> bool:
    return (
        row["consumer_seq"] == consumer.seq
        and row["state"] == State.INFLIGHT
        and row["lease"] is not None
        and ids.tokens_equal(row["lease"], item.lease)
    )


def _refused(consumer: Consumer, item: Held, row: Row | None, done: State | None) -> Result:
    if row is None or row["consumer_seq"] != consumer.seq:
        return Result(item.seq, 404, "not_found")
    state = State(row["state"])
    known = row["lease"] is not None and ids.tokens_equal(row["lease"], item.lease)
    if known and done is not None and state is done:
        # The answer to an earlier report was lost; nothing else happened to the job.
        return Result(item.seq, 200, "ok", state, repeated=True)
    return Result(item.seq, 409, "lease_lost", state)


def _states(tx: Tx, items: Sequence[Held]) -> dict[int, Row]:
    if not items:
        return {}
    rows = tx.all("states_of", seqs=json.dumps(sorted({item.seq for item in items})))
    return {row["seq"]: row for row in rows}


def _items(items: Sequence[Held]) -> str:
    return msgspec.json.encode(items).decode()


@dataclass(frozen=True, slots=True)
class Swept:
    """Count of leases that expired, and the states of those jobs since, by channel and consumer."""

    expired: int
    consumers: Mapping[tuple[str, str], Sequence[State]]
    cancelled: Mapping[tuple[str, str], int]


def expire_leases(tx: Tx, now: int) -> Swept:
    """Take back a limited number of jobs with expired leases: ready again at once, or dead."""
    rows = tx.all("load_expired", now=now, n=limits.SWEEP_ROWS)
    moves = [
        Move(
            row=row,
            event=failure_event(row["retries"], row["max_retries"]),
            error="the lease expired",
        )
        for row in rows
    ]
    states = apply_moves(tx, moves, now)
    note_attempts(tx, [_expired_attempt(row) for row in rows])
    found: dict[tuple[str, str], list[State]] = {}
    for row, state in zip(rows, states, strict=True):
        found.setdefault((row["channel_id"], row["consumer_id"]), []).append(state)
    cancelled = Counter(
        (row["channel_id"], row["consumer_id"]) for row in rows if row["cancelled_us"] is not None
    )
    return Swept(len(rows), found, cancelled)


def _expired_attempt(row: Row) -> dict[str, Any]:
    started = row["lease_started_us"]
    return {
        "job_seq": row["seq"],
        "number": row["claims"],
        "kind": "expired",
        "started_us": started,
        "duration_us": max(0, row["lease_expires_us"] - started),
        "status": 0,
        "error": "the lease expired",
        "excerpt": None,
    }


def list_queued(tx: Tx, consumer: Consumer, limit: int) -> Sequence[Row]:
    """List all QUEUED jobs, by falling priority, oldest first; jobs that cannot be claimed yet come last.

    The list ends earlier where the payloads are more than one answer should carry.
    """
    n = min(limit, limits.QUEUED_JOBS_MAX)
    total, fitting = 0, 0
    for row in tx.all("list_queued_sizes", consumer_seq=consumer.seq, n=n):
        if total >= limits.CLAIM_BYTES_MAX:
            break
        total += row["size"]
        fitting += 1
    return tx.all("list_queued", consumer_seq=consumer.seq, n=fitting)


def job_of_consumer(tx: Tx, consumer: Consumer, seq: int, *, foreign: int = 401) -> Row:
    """The job; 404 if it does not exist, ``foreign`` (401) if it is another consumer's."""
    row = tx.one("get_job", seq=seq)
    if row is None:
        raise missing(tx, seq)
    if row["consumer_seq"] != consumer.seq:
        raise JobsError(foreign, "foreign_job", "the job is another consumer's", "jobId")
    return row


def is_held(tx: Tx, consumer: Consumer, job_id: str) -> bool:
    """Whether the consumer has taken this job by the specified route, and not finished it.

    One that became a push consumer meanwhile still finishes it; nobody else has it until its time is over.
    """
    row = tx.one("get_job", seq=ids.job_number(job_id)) if ids.is_job_number(job_id) else None
    return (
        row is not None
        and row["consumer_seq"] == consumer.seq
        and row["state"] == State.INFLIGHT
        and row["lease"] is None
    )


def pull_timeout_s(
    connection_timeout_s: float, rational_delay_s: float, incremental_s: int
) -> float:
    """Seconds that a pull job may stay INFLIGHT: stopTimeout + rationalDelay + IncrementalTimeout."""
    return connection_timeout_s + limits.STOP_MARGIN_S + rational_delay_s + incremental_s


def change_state(
    tx: Tx, consumer: Consumer, seq: int, asked: str, incremental_s: int, options: Options, now: int
) -> Event | None:
    """Carry out a ``NextState``, or reject it with 400; setting the current state changes nothing.

    Returns what happened to the job: ``None`` for nothing.

    A job held under a lease of the leased API can be finished only with that lease.
    """
    job_of_consumer(tx, consumer, seq)
    row = load(tx, [seq]).get(seq)
    if row is None:
        raise missing(tx, seq)
    event = requested_event(State(row["state"]), asked, incremental_s)
    if event is None:
        return None
    if event in {Event.COMPLETE, Event.BURY} and row["lease"] is not None:
        raise bad_request(
            "leased",
            "invalid transition request: the job is held under a lease and finished with it",
            "NextState",
        )
    timeout_s = pull_timeout_s(
        options.connection_timeout_s, options.rational_delay_s, incremental_s
    )
    apply_moves(
        tx,
        [
            Move(
                row=row,
                event=event,
                lease_expires_us=now + round(timeout_s * 1e6),
                extra_s=incremental_s,
                error="marked DEAD by the consumer" if event is Event.BURY else None,
            )
        ],
        now,
    )
    return Event.CANCEL if event is Event.BURY and row["cancelled_us"] is not None else event
