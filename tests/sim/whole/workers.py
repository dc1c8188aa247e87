"""Who consumes: pulling in every manner, or being pushed to, and acknowledging in every manner."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from sim.whole.desk import Desk
from sim.whole.link import Link
from sim.whole.stage import Stage, publication

__all__ = ["Pusher", "Worker"]

_STATUS = re.compile(rb"NATS/1\.0 (\d{3})")
_OUT_MAX = 3  # pull requests at a time
_DRAIN_ROUNDS_MAX = 30


class Worker:
    """Pulls from one durable consumer."""

    def __init__(self, stage: Stage, stream: str, name: str) -> None:
        self.stage = stage
        self.stream = stream
        self.name = name
        self.old: list[tuple[Desk, int, bytes]] = []  # given by a broker that has died since

    def connect(self, kind: str) -> None:
        self.link = Link(self.stage.plant, kind)
        self.hand: list[tuple[Desk, int, bytes]] = []
        self.inboxes = 0

    def disconnected(self) -> None:
        self.old = self.hand[-4:]

    @property
    def desk(self) -> Desk | None:
        return self.stage.desks_of(self.stage.streams[self.stream]).get(self.name)

    def act(self) -> None:
        desk = self.desk
        if self.link.waiting or desk is None:
            return
        rng = self.stage.rng
        if self.old and rng.random() < 0.3:
            self.stage.counts["ack of a former life"] += 1
            self._ack(*self.old.pop(), b"+ACK", answered=True)
        elif self.hand and rng.random() < 0.7:
            self.work()
        elif self.inboxes < _OUT_MAX:
            self.fetch()

    # -- pulling

    def fetch(self) -> None:
        rng = self.stage.rng
        request: dict[str, Any] = {"batch": rng.choice((1, 2, 5, 20))}
        way = rng.choice(("no_wait", "no_wait expires", "expires", "expires", "max_bytes"))
        self.stage.counts[f"fetch {way}"] += 1
        if "no_wait" in way:
            request["no_wait"] = True
        if way != "no_wait":
            request["expires"] = rng.choice((100, 1000, 5000)) * 1_000_000
        if way == "max_bytes":
            request["max_bytes"] = rng.choice((100, 3000))
        self.pull(request)

    def pull(self, request: dict[str, Any]) -> None:
        self.inboxes += 1
        left = request["batch"]
        assert isinstance(left, int)

        def heard(subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
            nonlocal left
            if _STATUS.match(headers):
                left = 0
            else:
                left -= 1
                self.take(subject, reply, payload)
            if not left:
                self.inboxes -= 1
                self.link.close(inbox)

        inbox = self.link.open(heard)
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{self.name}".encode()
        self.link.say(publication(subject, msgspec.json.encode(request), inbox))

    def take(self, subject: bytes, reply: bytes, payload: bytes) -> None:
        desk = (
            self.desk
        )  # the one that is there now: with the one before it its requests have ended
        assert desk is not None
        sequence = int(reply.split(b".")[-4])
        syncs = -1 if self.stage.is_lied_to else self.stage.mark
        desk.deliver(sequence, subject, payload, syncs)
        self.stage.counts["delivered"] += 1
        if desk.takes_acks:
            self.hand.append((desk, sequence, reply))

    # -- acknowledging

    def work(self) -> None:
        ways: list[Callable[[], None]] = [
            self.ack_many,
            self.ack_many,
            self.ack_twice,
            self.ack_twice,
        ]
        ways += [self.answer_otherwise, self.forget]
        self.stage.rng.choice(ways)()

    def ack_many(self) -> None:
        """In one chunk, and nobody answers."""
        hand, self.hand = self.hand, []
        self.stage.counts["acks together" if len(hand) > 1 else "ack"] += 1
        for desk, sequence, reply in hand:
            self._ack(desk, sequence, reply, b"+ACK")

    def ack_twice(self) -> None:
        """And wait for the answer: double acks."""
        rng = self.stage.rng
        count = rng.randrange(1, 4)
        taken, self.hand = self.hand[:count], self.hand[count:]
        for desk, sequence, reply in taken:
            self.stage.counts["double ack"] += 1
            self._ack(desk, sequence, reply, rng.choice((b"+ACK", b"+ACK", b"")), answered=True)

    def answer_otherwise(self) -> None:
        body = self.stage.rng.choice((b"-NAK", b'-NAK {"delay": 500000000}', b"+TERM", b"+WPI"))
        self.stage.counts[body.split()[0].decode()] += 1
        desk, sequence, reply = self.hand.pop(0)
        if body == b"+TERM":
            self._ack(desk, sequence, reply, body, answered=self.stage.rng.random() < 0.5)
        else:
            self.link.say(publication(reply, body))

    def forget(self) -> None:
        """A worker that died: what it held comes again."""
        self.hand.clear()

    def _ack(
        self, desk: Desk, sequence: int, subject: bytes, body: bytes, *, answered: bool = False
    ) -> None:
        stage = self.stage
        fresh: list[int] = []
        mark = -1

        def effect() -> None:
            nonlocal desk, fresh, mark
            # What was made anew under the same name cannot tell acks of its predecessor's messages.
            desk = self.desk or desk
            if sequence in desk.held and sequence in desk.ledger.live:
                mark = stage.mark
            fresh = desk.ack(sequence)

        def heard(_: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
            self.link.forget(inbox)
            if _STATUS.match(headers):
                raise AssertionError(f"nobody took the ack of {sequence}")
            assert not payload
            stage.synced_since(mark, f"ack of {sequence}")
            stage.counts["ack confirmed"] += 1
            desk.confirm(fresh)

        inbox = self.link.inbox(heard) if answered else b""
        self.link.say(publication(subject, body, inbox), effect)

    # -- the end

    def _finish_hand(self) -> None:
        hand, self.hand = self.hand, []
        for number, entry in enumerate(hand):
            self._ack(*entry, b"+ACK", answered=number % 8 == 0)

    def drain(self) -> None:
        """Work until there is nothing left; everything that was still to be given must come."""
        stage, desk = self.stage, self.desk
        assert desk is not None
        self.hand.clear()
        due = desk.open_work()
        desk.given.clear()
        for _ in range(_DRAIN_ROUNDS_MAX):
            before = len(desk.given)
            self.pull({"batch": 100, "no_wait": True})
            self.link.push()
            stage.plant.settle()
            if self.hand:
                self._finish_hand()
                self.link.push()
                stage.plant.settle()
            elif len(desk.given) == before:
                info = stage.ask(self.link, f"CONSUMER.INFO.{self.stream}.{self.name}")
                if not info["num_pending"] and not info["num_ack_pending"]:
                    break
                stage.plant.advance(2.1)  # past the ack wait
        else:
            raise AssertionError(f"{self.stream}/{self.name} never comes to its end: {info}")
        if desk.must_see_all:
            missing = due - desk.given
            assert not missing, f"{self.stream}/{self.name} was never given {sorted(missing)}"


class Pusher(Worker):
    """Is pushed to, and answers flow control."""

    def connect(self, kind: str) -> None:
        super().connect(kind)
        self.link.listen(f"D.{self.name}".encode(), self.heard)

    def heard(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        status = _STATUS.match(headers)
        if status is None:
            self.take(subject, reply, payload)
            self.stage.counts["pushed"] += 1
        elif status[1] == b"100" and reply:
            self.stage.counts["flow control"] += 1
            self.link.say(publication(reply, b""))

    def fetch(self) -> None:
        """It need not ask."""

    def drain(self) -> None:
        stage, desk = self.stage, self.desk
        assert desk is not None
        self.hand.clear()
        due = desk.open_work()
        desk.given.clear()
        for _ in range(_DRAIN_ROUNDS_MAX):
            self.link.push()
            stage.plant.settle()
            if self.hand:
                self._finish_hand()
                continue
            info = stage.ask(self.link, f"CONSUMER.INFO.{self.stream}.{self.name}")
            if not info["num_pending"] and not info["num_ack_pending"]:
                break
            stage.plant.advance(2.1)
        else:
            raise AssertionError(f"{self.stream}/{self.name} never comes to its end: {info}")
        if desk.must_see_all:
            missing = due - desk.given
            assert not missing, f"{self.stream}/{self.name} was never given {sorted(missing)}"


def worker_of(stage: Stage, stream: str, name: str, pushed: bool) -> Worker:
    return Pusher(stage, stream, name) if pushed else Worker(stage, stream, name)
