"""What the actors of one seed share: the plant, the ledgers, and ways to ask the broker something."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from sim.whole.desk import Desk
from sim.whole.ledger import Ledger
from sim.whole.link import Link
from sim.whole.plant import Plant

__all__ = ["Stage", "block", "publication"]

Answer = dict[str, Any]


def block(**headers: Any) -> bytes:
    """A header block; ``Nats_Msg_Id="x"`` is the header ``Nats-Msg-Id``."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def publication(subject: bytes, payload: bytes, reply: bytes = b"", headers: bytes = b"") -> bytes:
    if not headers:
        return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(payload), payload)
    sizes = (len(headers), len(headers) + len(payload))
    return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject, reply, *sizes, headers, payload)


class Stage:
    """See the module. ``loose``: something on the disk has failed, and errors are fair answers."""

    def __init__(self, rng: random.Random, plant: Plant) -> None:
        self.rng = rng
        self.plant = plant
        self.counts: Counter[str] = Counter()
        self.streams: dict[str, Ledger] = {}
        self.former: dict[str, Ledger] = {}  # deleted, and that was not confirmed
        self.desks: dict[tuple[str, int], dict[str, Desk]] = {}  # of one life of a stream
        self.configs: dict[str, dict[str, Any]] = {}
        self.loose = False
        self.is_lied_to = False  # by a disk that says it has synced
        self.lives = 0
        self._numbers = 0

    @property
    def mark(self) -> int:
        """How often the disk of this life was synced."""
        return self.plant.fs.syncs

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def payload(self) -> bytes:
        size = self.rng.choice((0, 0, 30, 30, 400, 1500))
        return b"%d:" % self.number() + b"x" * size

    def desks_of(self, ledger: Ledger) -> dict[str, Desk]:
        return self.desks.setdefault((ledger.name, ledger.life), {})

    def synced_since(self, mark: int, what: str) -> None:
        """An answer has come to what was handed over at ``mark``."""
        assert self.mark > mark or self.is_lied_to, f"{what}: answered before anything was synced"

    def refused(self, answer: Answer, what: str) -> bool:
        """Whether the answer is an error, which only a failing disk excuses."""
        if "error" not in answer:
            return False
        assert self.loose, f"{what}: {answer['error']}"
        self.counts["refused"] += 1
        return True

    def call(
        self,
        link: Link,
        verb: str,
        body: Any,
        then: Callable[[Answer], None],
        effect: Callable[[], None] | None = None,
    ) -> None:
        """Ask the JSON API; nothing is handed over yet."""

        def heard(subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
            link.forget(inbox)
            self.counts["answers"] += 1
            then(msgspec.json.decode(payload))

        inbox = link.inbox(heard)
        payload = b"" if body is None else msgspec.json.encode(body)
        link.say(publication(b"$JS.API." + verb.encode(), payload, inbox), effect)

    def ask(self, link: Link, verb: str, body: Any = None) -> Answer:
        """The same at once, for what needs no flush."""
        answers: list[Answer] = []
        self.call(link, verb, body, answers.append)
        link.push()
        self.plant.tick()
        if not answers:
            self.plant.settle()
        assert len(answers) == 1, f"{verb}: {answers}"
        return answers[0]
