"""Who makes, changes, purges and deletes streams and consumers, and asks how they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sim.whole.desk import Desk
from sim.whole.ledger import Ledger
from sim.whole.link import Link
from sim.whole.stage import Answer, Stage

__all__ = ["Admin"]

SECOND = 1_000_000_000
HOUR = 3600 * SECOND


class Admin:
    """Calls the JSON API; what it deletes it makes anew in the same chunk."""

    at_once = True

    def __init__(self, stage: Stage, consumers: dict[str, dict[str, dict[str, Any]]]) -> None:
        self.stage = stage
        self.consumers = consumers  # of each stream, by name

    def connect(self, kind: str) -> None:
        self.link = Link(self.stage.plant, kind)

    def act(self) -> None:
        if self.link.waiting:
            return
        ways: list[Callable[[str], None]] = [
            self.purge,
            self.purge,
            self.delete_message,
            self.update,
        ]
        ways += [self.ask_consumers, self.remake_consumer, self.ephemeral]
        stage = self.stage
        name = stage.rng.choice([name for name in stage.streams if name not in "MT"])
        if name == "X" and stage.rng.random() < 0.3:
            ways = [self.remake]
        stage.plant.tick()  # what was published before is within its limits
        stage.rng.choice(ways)(name)

    # -- streams

    def make(self, name: str) -> None:
        """A stream with its consumers, in one chunk."""
        stage = self.stage
        stage.lives += 1
        ledger = Ledger(name, stage.lives, keep=stage.configs[name].get("max_msgs_per_subject", -1))
        config = {"name": name, "description": f"life {ledger.life}", **stage.configs[name]}

        def effect() -> None:
            stage.streams[name] = ledger

        def then(answer: Answer) -> None:
            if stage.refused(answer, f"creating {name}"):
                return
            ledger.version = max(ledger.version, 1)
            ledger.acked_version = max(ledger.acked_version, 1)
            if stage.former.get(name) is not ledger:  # or it is deleted again by now
                stage.former.pop(name, None)  # a later answer stands for all before

        stage.call(self.link, f"STREAM.CREATE.{name}", config, then, effect)
        for consumer in self.consumers.get(name, ()):
            self.make_consumer(ledger, consumer)

    def remake(self, name: str) -> None:
        """Delete a stream and make it anew."""
        stage = self.stage
        if name in stage.former:
            return  # one thing at a time
        stage.counts["stream made anew"] += 1

        def effect() -> None:
            stage.former[name] = stage.streams[name]

        def then(answer: Answer) -> None:
            if not stage.refused(answer, f"deleting {name}"):
                stage.former.pop(name, None)
                stage.counts["stream deleted"] += 1

        stage.call(self.link, f"STREAM.DELETE.{name}", None, then, effect)
        self.make(name)

    def update(self, name: str) -> None:
        stage, ledger = self.stage, self.stage.streams[self.stage.streams[name].name]
        stage.counts["stream updated"] += 1
        version = ledger.version + 1
        config = {"name": name, "description": f"life {ledger.life}", **stage.configs[name]}
        config["metadata"] = {"version": str(version)}
        keep = ledger.keep
        if keep > 0 and name != "KV_B":
            keep = config["max_msgs_per_subject"] = stage.rng.randrange(2, 7)

        def effect() -> None:
            ledger.version = version
            if keep > 0:
                ledger.set_keep(keep)

        def then(answer: Answer) -> None:
            if not stage.refused(answer, f"updating {name}"):
                ledger.acked_version = max(ledger.acked_version, version)

        stage.call(self.link, f"STREAM.UPDATE.{name}", config, then, effect)

    def purge(self, name: str) -> None:
        stage, rng = self.stage, self.stage.rng
        ledger = stage.streams[name]
        body: dict[str, Any] = {}
        way = rng.choice(("all", "subject", "keep", "below", "below"))
        if rng.random() < 0.5 or way == "subject":
            prefix = "$KV.B." if name == "KV_B" else f"{name.lower()}."
            body["filter"] = prefix + rng.choice("xyz" if name == "KV_B" else "abc")
        if way == "keep":
            body["keep"] = rng.randrange(1, 6)
        elif way == "below":
            body["seq"] = rng.randrange(1, ledger.last + 2)
        stage.counts[f"purge {way}"] += 1
        removed: list[int] = []
        mark = 0

        def effect() -> None:
            nonlocal removed, mark
            mark = stage.mark
            chosen = body.get("filter", "").encode()
            found = [s for s, r in ledger.live.items() if not chosen or r.subject == chosen]
            if "keep" in body:
                found = found[: -body["keep"]]
            elif "seq" in body:
                found = [s for s in found if s < body["seq"]]
            removed = ledger.remove(found)

        def then(answer: Answer) -> None:
            if stage.refused(answer, f"purging {name}"):
                return
            assert answer["purged"] == len(removed), f"{name} {body}: {answer} for {removed}"
            if removed:
                stage.synced_since(mark, f"purge of {name}")
                stage.counts["purged"] += len(removed)
            ledger.gone.update(removed)

        stage.call(self.link, f"STREAM.PURGE.{name}", body, then, effect)

    def delete_message(self, name: str) -> None:
        stage = self.stage
        ledger = stage.streams[name]
        if not ledger.live or name == "KV_B":  # which denies it
            return
        stage.counts["message deleted"] += 1
        sequence = stage.rng.choice(list(ledger.live))
        removed: list[int] = []
        mark = 0

        def effect() -> None:
            nonlocal removed, mark
            mark = stage.mark
            removed = ledger.remove([sequence])

        def then(answer: Answer) -> None:
            if "error" in answer and not removed:
                return  # gone before
            if not stage.refused(answer, f"deleting {name} {sequence}"):
                stage.synced_since(mark, f"deletion of {name} {sequence}")
                ledger.gone.update(removed)

        body = {"seq": sequence, "no_erase": stage.rng.random() < 0.5}
        stage.call(self.link, f"STREAM.MSG.DELETE.{name}", body, then, effect)

    # -- consumers

    def make_consumer(self, ledger: Ledger, name: str) -> None:
        stage = self.stage
        config = self.consumers[ledger.name][name]
        desk = Desk(ledger, name, config)

        def effect() -> None:
            stage.desks_of(ledger)[name] = desk

        def then(answer: Answer) -> None:
            if not stage.refused(answer, f"creating {ledger.name}/{name}"):
                desk.is_made = True

        body = {"stream_name": ledger.name, "config": {"durable_name": name, **config}}
        stage.call(self.link, f"CONSUMER.CREATE.{ledger.name}.{name}", body, then, effect)

    def remake_consumer(self, name: str) -> None:
        """Delete a consumer and make it anew: it begins at the beginning."""
        stage = self.stage
        ledger = stage.streams[name]
        desks = stage.desks_of(ledger)
        if not desks or stage.rng.random() < 0.5:
            return
        desk = stage.rng.choice(list(desks.values()))
        if not desk.is_made:
            return
        stage.counts["consumer made anew"] += 1

        def effect() -> None:
            desk.is_made = False  # whether it is there is open until the next answer

        stage.call(
            self.link,
            f"CONSUMER.DELETE.{name}.{desk.name}",
            None,
            lambda answer: self._told(answer, "deleting a consumer"),
            effect,
        )
        self.make_consumer(ledger, desk.name)

    def ephemeral(self, name: str) -> None:
        """One without a name, which is left alone."""
        stage = self.stage
        stage.counts["ephemeral"] += 1
        if name == "W":
            return  # whose consumers may not overlap
        config = {"ack_policy": "none", "inactive_threshold": 3 * SECOND}
        body = {"stream_name": name, "config": config}
        stage.call(
            self.link,
            f"CONSUMER.CREATE.{name}",
            body,
            lambda answer: self._told(answer, "an ephemeral consumer"),
        )

    def _told(self, answer: Answer, what: str) -> None:
        if not self.stage.refused(answer, what):
            self.stage.counts[what] += 1

    def ask_consumers(self, name: str) -> None:
        """At rest what the broker says is exact."""
        stage = self.stage
        stage.counts["quiet"] += 1
        stage.plant.settle()
        for ledger in stage.streams.values():
            self.check_stream(ledger)

    def check_stream(self, ledger: Ledger) -> None:
        stage, name = self.stage, ledger.name
        if name in "MT" or stage.loose:
            return
        state = stage.ask(self.link, f"STREAM.INFO.{name}")["state"]
        assert (state["messages"], state["last_seq"]) == (len(ledger.live), ledger.last), (
            f"{name}: {state} for {len(ledger.live)} messages to {ledger.last}"
        )
        if ledger.live:
            assert state["first_seq"] == min(ledger.live), f"{name}: {state['first_seq']}"
        for desk in stage.desks_of(ledger).values():
            info = stage.ask(self.link, f"CONSUMER.INFO.{name}.{desk.name}")
            come = max(info["delivered"]["stream_seq"], 0)
            where = f"{name}/{desk.name} at {come}"
            assert info["num_pending"] == desk.pending_after(come), f"{where}: {info}"
            assert come <= max(desk.position, ledger.last), where
