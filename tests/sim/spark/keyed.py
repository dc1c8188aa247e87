"""One seed of a query whose sink has a key: each key must end with the last of its messages."""

from __future__ import annotations

from collections import Counter
from typing import Any

from headrace.spark.links.link import Link
from sim.spark.engine import key_of
from sim.spark.world import World

__all__ = ["KeyedWorld"]


class KeyedWorld(World):
    """``World`` with another sink, and another judgement."""

    def __init__(self, seed: int, **cast: Any) -> None:
        super().__init__(seed, **cast)
        if self.delivery == "dedupe":
            self.delivery = self.ledger.delivery = "atLeastOnce"
        self._is_direct = self.rng.random() < 0.5
        self._was_reset = False

    def _sink(self) -> dict[str, str]:
        return {
            "servers": "nats://virtual:4222",
            "stream": "OUT",
            "subject": "OUT.{k}",
            "key": "k",
            "delivery": self.delivery,
            "sinkId": "sink",
            "onBadRow": self._bad_to,
        }

    def _create_stream(self, link: Link, name: str) -> None:
        super()._create_stream(link, name)
        if name == "OUT" and self._is_direct:
            config = self._call(link, "STREAM.INFO.OUT")["config"]
            self._call(link, "STREAM.UPDATE.OUT", {**config, "allow_direct": True})

    def _reset_target(self) -> None:
        super()._reset_target()
        self._was_reset = True

    def _judge(self) -> None:
        with self._admin() as link:
            rows = [(s, p) for s, p in self._read(link, "OUT") if s.startswith("OUT.")]
        last = dict(rows)
        self.ledger.judge_keys({s.removeprefix("OUT."): p for s, p in last.items()}, key_of)
        self.counts["rows"] += len(rows)
        if self.delivery == "exactlyOnce" and not self.ledger.lives and not self._was_reset:
            doubled = [row for row, count in Counter(rows).items() if count > 1]
            assert not doubled, f"{len(doubled)} values are stored twice, one is {doubled[0]!r}"
