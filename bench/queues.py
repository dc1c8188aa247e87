"""What elastic consumer groups ask of a work queue: to be fed through little room, and to change members.

A source puts the partition in front of each subject, the queue refuses what is beyond ``max_msgs``, and
members with filter lists of their own take it away. nats-server feeds a full queue again after seconds, so
every run ends after some time, too. Then members of a full queue exchange partitions.
"""

from __future__ import annotations

import random
import selectors
import threading
import time
from typing import Any

import contenders
import cpu
import pins
import report
from contenders import Contender, running
from rawsocket import RawConnection
from waiting import until_here

ORIGIN = "ORIGIN"
QUEUE = "ORIGIN-group"
STORAGES = ("memory", "file")
PAYLOAD_BYTES = 100
KEYS = 1_000
SECOND_NS = 1_000_000_000

MESSAGES = 50_000
ROOMS = (100, -1)
MEMBERS = 4
PARTITIONS = 16
PUBLISHED_IN_FLIGHT = 1_000
SECONDS_MAX = 5.0

WAITING = 100_000
CHANGING = (64, 16)
"""Members, and partitions of each."""
CHANGES = 15


def subject(index: int) -> str:
    return f"orders.k{index * 7919 % KEYS}"


def create_queue(admin: RawConnection, storage: str, partitions: int, **config: Any) -> None:
    rule = {
        "src": "orders.*",
        "dest": "{{Partition(" + str(partitions) + ",1)}}.orders.{{Wildcard(1)}}",
    }
    admin.request(
        f"$JS.API.STREAM.CREATE.{ORIGIN}",
        {"name": ORIGIN, "subjects": ["orders.*"], "storage": storage, "num_replicas": 1},
    )
    admin.request(
        f"$JS.API.STREAM.CREATE.{QUEUE}",
        {
            "name": QUEUE,
            "retention": "workqueue",
            "discard": "new",
            "storage": storage,
            "num_replicas": 1,
            "sources": [{"name": ORIGIN, "subject_transforms": [rule]}],
            **config,
        },
    )


def create_member(admin: RawConnection, member: str, partitions: list[int]) -> None:
    config = {
        "name": member,
        "ack_policy": "explicit",
        "ack_wait": pins.ACK_WAIT_NS,
        "max_ack_pending": 1_000,
        "inactive_threshold": 600 * SECOND_NS,
        "filter_subjects": [f"{partition}.>" for partition in partitions],
        "priority_policy": "pinned_client",
        "priority_groups": [pins.GROUP],
        "priority_timeout": pins.ACK_WAIT_NS,
    }
    admin.request(
        f"$JS.API.CONSUMER.CREATE.{QUEUE}.{member}",
        {"stream_name": QUEUE, "config": config, "action": "create"},
    )


def feed(contender: Contender, storage: str, room: int, messages: int) -> tuple[float, float]:
    """Publish into the origin while members take from the queue: messages/s, µs of the server for each."""
    with running(contender) as server, RawConnection(server.host, server.port) as admin:
        create_queue(admin, storage, PARTITIONS, max_msgs=room)
        selector = selectors.DefaultSelector()
        members = []
        for number in range(MEMBERS):
            create_member(admin, f"m{number}", list(range(number, PARTITIONS, MEMBERS)))
            member = pins.Candidate(server, number, QUEUE, f"m{number}")
            selector.register(member.socket, selectors.EVENT_READ, member.read)
            members.append(member)
        publisher = threading.Thread(
            target=admin.publish_acked,
            args=(messages, PUBLISHED_IN_FLIGHT, PAYLOAD_BYTES, subject),
        )
        before = cpu.of_process(server.process.pid)
        started = time.perf_counter()
        publisher.start()
        taken, seconds = 0, 0.0
        while taken < messages and seconds < SECONDS_MAX:
            for key, _ in selector.select(0.1):
                key.data()
            taken = sum(member.taken for member in members)
            seconds = time.perf_counter() - started
        used = cpu.of_process(server.process.pid) - before
        publisher.join()
        selector.close()
        for member in members:
            member.close()
    return taken / seconds, 1e6 * used / taken


def change(contender: Contender, storage: str) -> tuple[float, ...]:
    """Two members exchange partitions, again and again: milliseconds of a refused create, a delete, a
    create, and of the server's processor time for an exchange.

    Each time with lists of filters that were not there before, in front of all that waits.
    """
    chance = random.Random(1)
    count, each = CHANGING
    refusals, deletes, creates = [], [], []

    def timed(times: list[float], subject: str, *what: Any) -> None:
        started = time.perf_counter()
        if what:
            create_member(admin, subject, *what)
        else:
            admin.request(subject)
        times.append(1e3 * (time.perf_counter() - started))

    with running(contender) as server, RawConnection(server.host, server.port) as admin:
        create_queue(admin, storage, count * each)
        admin.publish_acked(WAITING, 16_000, PAYLOAD_BYTES, subject)
        info = f"$JS.API.STREAM.INFO.{QUEUE}"
        until_here(
            lambda: admin.request(info)["state"]["messages"] == WAITING,
            "not all messages are in the queue",
            within=60,
        )
        owned = {f"m{number}": list(range(number, count * each, count)) for number in range(count)}
        for member, partitions in owned.items():
            create_member(admin, member, partitions)
        before = cpu.of_process(server.process.pid)
        for _ in range(CHANGES):
            pair = chance.sample(sorted(owned), 2)
            together = [partition for member in pair for partition in owned[member]]
            chance.shuffle(together)
            timed(deletes, f"$JS.API.CONSUMER.DELETE.{QUEUE}.{pair[0]}")
            started = time.perf_counter()
            try:
                create_member(admin, pair[0], together[:each])
            except RuntimeError as refusal:
                if "10100" not in str(refusal):
                    raise
                refusals.append(1e3 * (time.perf_counter() - started))
            else:
                admin.request(f"$JS.API.CONSUMER.DELETE.{QUEUE}.{pair[0]}")
            timed(deletes, f"$JS.API.CONSUMER.DELETE.{QUEUE}.{pair[1]}")
            for member, partitions in zip(pair, (together[:each], together[each:]), strict=True):
                timed(creates, member, partitions)
                owned[member] = partitions
        used = cpu.of_process(server.process.pid) - before
    times = (report.median(each) for each in (refusals, deletes, creates))
    return (*times, 1e3 * used / CHANGES)


def run(rounds: int, servers: list[Contender], messages: int = MESSAGES) -> None:
    feeding(rounds, servers, messages)
    changing(servers)


def feeding(rounds: int, servers: list[Contender], messages: int) -> None:
    rows, figures = [], {}
    rates: dict[tuple[str, str, int], float] = {}
    for storage in STORAGES:
        for room in ROOMS:
            found: dict[str, list[tuple[float, float]]] = {}
            for number in range(rounds):
                for contender in servers:
                    found.setdefault(contender.name, []).append(
                        feed(contender, storage, room, messages)
                    )
                    rate, used = found[contender.name][-1]
                    print(
                        f"  round {number + 1}: {contender.name}, {storage}, max_msgs {room}:"
                        f" {rate:,.0f}/s, {used:.1f} µs"
                    )
            for name, results in found.items():
                rate = rates[name, storage, room] = report.median([rate for rate, _ in results])
                figures[f"{name} / {storage} / {room}"] = results
                rows.append(
                    [
                        name,
                        storage,
                        f"{room:,}" if room > 0 else "no limit",
                        f"{rate:,.0f}",
                        report.spread([rate for rate, _ in results]),
                        f"{report.median([used for _, used in results]):.1f}",
                    ]
                )
    report.table(
        f"Through a work queue: {messages:,} messages, {MEMBERS} members, median of {rounds}",
        ["server", "storage", "max_msgs of the queue", "messages/s", "range", "server µs/message"],
        rows,
    )
    report.write("queues, feeding", {"rounds": rounds, **figures})
    ours, theirs = contenders.HEADRACE.name, contenders.NATS_DEFAULT.name
    for storage in STORAGES:
        if (ours, storage, ROOMS[0]) in rates and (theirs, storage, ROOMS[0]) in rates:
            one, other = rates[ours, storage, ROOMS[0]], rates[theirs, storage, ROOMS[0]]
            report.claim(
                f"through a queue of {ROOMS[0]} messages, {storage}, against nats-server",
                f"{one:,.0f}/s to {other:,.0f}/s",
                one / other,
                at_least=1,
            )


def changing(servers: list[Contender]) -> None:
    rows, figures = [], {}
    for contender in servers:
        for storage in STORAGES:
            times = figures[f"{contender.name} / {storage}"] = change(contender, storage)
            rows.append([contender.name, storage, *(f"{each:.2f}" for each in times)])
            print(f"  {contender.name}, {storage}: {', '.join(rows[-1][2:])} ms")
    members, partitions = CHANGING
    report.table(
        f"Members change: {members} with {partitions} filters each, {WAITING:,} messages waiting",
        [
            "server",
            "storage",
            "refused, 10100 (ms)",
            "delete (ms)",
            "create (ms)",
            "server ms for an exchange",
        ],
        rows,
    )
    report.write("queues, changing", figures)
