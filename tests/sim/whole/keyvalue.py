"""Who keeps keys and values, as the libraries do it: headers on publishes, and direct gets."""

from __future__ import annotations

from typing import Any

import msgspec

from sim.whole.ledger import Ledger
from sim.whole.link import Link
from sim.whole.stage import Stage, block, publication

__all__ = ["Bucket"]

_WRONG_LAST = (10071, 10164)


class Bucket:
    """One client of the bucket B."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def connect(self, kind: str) -> None:
        self.link = Link(self.stage.plant, kind)

    def act(self) -> None:
        if self.link.waiting:
            return
        rng = self.stage.rng
        key = b"$KV.B." + rng.choice((b"x", b"y", b"z"))
        way = rng.choice(
            ("put", "put", "create", "update", "stale", "delete", "purge", "get", "get")
        )
        self.stage.counts[f"kv {way}"] += 1
        if way == "get":
            self.get(key)
        else:
            self.write(way, key)

    def write(self, way: str, key: bytes) -> None:
        stage = self.stage
        ledger = stage.streams["KV_B"]
        headers: dict[str, Any] = {}
        expected = -1
        if way == "create":
            expected = 0
        elif way == "update":
            expected = ledger.last_of(key)
        elif way == "stale":
            expected = max(0, ledger.last_of(key) - 1)
        elif way in ("delete", "purge"):
            headers["KV-Operation"] = {"delete": "DEL", "purge": "PURGE"}[way]
        if way == "purge":
            headers["Nats-Rollup"] = "sub"
        if expected >= 0:
            headers["Nats-Expected-Last-Subject-Sequence"] = expected
        payload = stage.payload() if way not in ("delete", "purge") else b""
        sequence = mark = 0
        removed: list[int] = []

        def effect() -> None:
            nonlocal sequence, mark, removed, ledger
            ledger, mark = stage.streams["KV_B"], stage.mark
            if expected >= 0 and ledger.last_of(key) != expected:
                return
            sequence = ledger.append(key, payload, mark)
            if way == "purge":
                older = [s for s, r in ledger.live.items() if r.subject == key and s < sequence]
                removed = ledger.remove(older, sequence)

        def heard(_: bytes, reply: bytes, block: bytes, body: bytes) -> None:
            self.link.forget(inbox)
            answer = msgspec.json.decode(body)
            if not sequence and "error" in answer:
                assert answer["error"]["err_code"] in _WRONG_LAST or stage.loose, answer
                stage.counts["kv refused"] += 1
                return
            if stage.refused(answer, f"kv {way}"):
                return
            assert answer["seq"] == sequence, f"kv {way}: {answer} instead of {sequence}"
            stage.synced_since(mark, f"KV_B {sequence}")
            ledger.acked_last = max(ledger.acked_last, sequence)
            ledger.gone.update(removed)
            stage.counts["acknowledged"] += 1

        inbox = self.link.inbox(heard)
        self.link.say(
            publication(key, payload, inbox, block(**headers) if headers else b""), effect
        )

    def get(self, key: bytes) -> None:
        """The newest value that is on the disk: what was acknowledged, or newer."""
        stage = self.stage
        ledger: Ledger | None = None
        gone: set[int] = set()
        acked, has_value = 0, False

        def effect() -> None:
            nonlocal ledger, acked, gone, has_value
            ledger = stage.streams["KV_B"]
            gone = set(ledger.gone)
            of_key = [s for s, r in ledger.live.items() if r.subject == key]
            acked = max([s for s in of_key if s <= ledger.acked_last], default=0)
            # What a newer value has displaced is to be found until that one is on the disk.
            has_value = bool(acked) or any(
                record.subject == key and s <= ledger.acked_last and ledger.cause.get(s)
                for s, record in ledger.every.items()
                if of_key
            )

        def heard(_: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
            self.link.forget(inbox)
            assert ledger is not None
            if headers.startswith(b"NATS/1.0 404"):
                assert not acked or stage.loose, (
                    f"{key!r}: {acked} was acknowledged, and is not found"
                )
                return
            if headers.startswith(b"NATS/1.0 500") and stage.loose:
                return  # the disk does not let it be read now
            lines = dict(line.split(b": ", 1) for line in headers.split(b"\r\n")[1:] if line)
            sequence = int(lines[b"Nats-Sequence"])
            ledger.shows(sequence, key, payload, gone)
            assert sequence >= acked or stage.loose, f"{key!r}: {sequence} after {acked}"
            stage.synced_since(ledger.every[sequence].mark, f"{key!r}: {sequence}")
            stage.counts["kv read"] += 1

        inbox = self.link.inbox(heard)
        self.link.say(publication(b"$JS.API.DIRECT.GET.KV_B." + key, b"", inbox), effect)
