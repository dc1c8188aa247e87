"""One hostile client beside a good one: how long the good one waits, and what the server holds meanwhile.

The good client pings every 10 ms and publishes into a file stream every 20 ms, whether or not the one before
has been answered, so that a stall is counted for everybody who would have come during it. Its server and the
hostile client are processes of their own. The bars are for a quiet machine: how long the server waited for a
core is told beside the figures.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import select
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import contenders
import cpu
import peers
import report
from contenders import Contender
from hostile import ATTACKS, Attack, Target

PING_EVERY_S = 0.010
PUBLISH_EVERY_S = 0.020
PING_P99_MS = 50.0
PUBLISH_P99_MS = 100.0
GROWTH_MIB = 512.0
ANSWERS_S = 20.0  # for what is unanswered at the end
STREAM = "GOOD"
HEAD = ["hostile client", "server", "ping p50 (ms)", "p99", "max", "publish p99", "memory (MiB)"]
HEAD += ["no core (%)", "missed"]


@dataclass
class Probe:
    """What the good client saw, in milliseconds, and the server's memory."""

    pings: list[float] = field(default_factory=list)
    publishes: list[float] = field(default_factory=list)
    growth_mib: float = 0.0
    lost: str = ""
    queued: float = 0.0
    """The share of the time in which the server's event loop could have run, and had no core."""

    def ping_p99(self) -> float:
        return percentile(self.pings, 0.99)

    def publish_p99(self) -> float:
        return percentile(self.publishes, 0.99)

    @property
    def missed(self) -> str:
        """Which bars were missed."""
        bars = (
            ("ping", self.ping_p99() > PING_P99_MS),
            ("publish", self.publish_p99() > PUBLISH_P99_MS),
            ("memory", self.growth_mib > GROWTH_MIB),
            (self.lost, bool(self.lost)),
        )
        return ", ".join(name for name, missed in bars if missed)


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("inf")


class GoodClient:
    """A connection that is asked at fixed times and never waited for."""

    def __init__(self, server: peers.ServerProcess, tls: bool) -> None:
        wire = socket.create_connection((server.host, server.port), timeout=30.0)
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeting = wire.recv(4096)
        assert greeting.startswith(b"INFO "), greeting
        if tls:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            wire = context.wrap_socket(wire)
        options = b'{"verbose":false,"pedantic":false,"headers":true,"no_responders":true}'
        wire.sendall(b"CONNECT %b\r\nSUB _GOOD 1\r\n" % options)
        config = b'{"name":"%b","subjects":["good.>"],"storage":"file"}' % STREAM.encode()
        wire.sendall(b"PUB $JS.API.STREAM.CREATE.GOOD _GOOD %d\r\n%b\r\n" % (len(config), config))
        while b'"created"' not in (answer := wire.recv(65536)):
            assert answer, "hung up"
        wire.setblocking(False)
        self._wire = wire
        self._tail = b""
        self.asked: dict[bytes, deque[float]] = {b"PONG": deque(), b'"seq":': deque()}

    def ask(self, line: bytes, mark: bytes, due: float) -> None:
        self.asked[mark].append(due)
        sent = self._wire.send(line)
        assert sent == len(line), "the socket is full: the server does not read"

    def hear(self, until: float) -> list[tuple[bytes, float]]:
        """The answers that come until then, with the time each took."""
        found: list[tuple[bytes, float]] = []
        while (left := until - time.perf_counter()) > 0:
            if not self._pending() and not select.select([self._wire], [], [], left)[0]:
                break
            try:
                data = self._wire.recv(1 << 16)
            except ssl.SSLWantReadError:
                continue
            if not data:
                raise ConnectionError("the server hung up on the good client")
            lines = (self._tail + data).split(b"\r\n")
            self._tail = lines.pop()
            now = time.perf_counter()
            for line in lines:
                for mark, times in self.asked.items():
                    if mark in line and times:
                        found.append((mark, now - times.popleft()))
                if line == b"PING":
                    self._wire.send(b"PONG\r\n")
        return found

    def _pending(self) -> bool:
        return isinstance(self._wire, ssl.SSLSocket) and self._wire.pending() > 0

    def close(self) -> None:
        self._wire.close()


def watch(client: GoodClient, probe: Probe, pid: int, seconds: float) -> None:
    """Ask at fixed times, and note how long each answer took."""
    base = cpu.resident_bytes(pid)
    started = time.perf_counter()
    ping, store = (b"PING\r\n", b"PONG"), (b"PUB good.a _GOOD 4\r\ngood\r\n", b'"seq":')
    turn = 0
    queued = cpu.waited_for_a_core(pid)
    try:
        while (due := started + turn * PING_EVERY_S) < started + seconds:
            note(probe, client.hear(due))
            client.ask(*ping, due)
            if turn % round(PUBLISH_EVERY_S / PING_EVERY_S) == 0:
                client.ask(*store, due)
            turn += 1
            probe.growth_mib = max(probe.growth_mib, (cpu.resident_bytes(pid) - base) / (1 << 20))
        queued = cpu.waited_for_a_core(pid) - queued
        probe.queued = queued / (time.perf_counter() - started)
        deadline = time.perf_counter() + ANSWERS_S
        while any(client.asked.values()) and time.perf_counter() < deadline:
            note(probe, client.hear(time.perf_counter() + 0.05))
        if any(client.asked.values()):
            probe.lost = "unanswered"
    except OSError as error:
        probe.lost = f"good client cut off: {error}"


def note(probe: Probe, answers: list[tuple[bytes, float]]) -> None:
    for mark, took in answers:
        (probe.pings if mark == b"PONG" else probe.publishes).append(1e3 * took)


@contextlib.contextmanager
def started(contender: Contender, *, tls: bool) -> Iterator[peers.ServerProcess]:
    """A fresh server; over TLS with a certificate made for it."""
    if not tls:
        with contenders.running(contender) as server:
            yield server
        return
    directory = Path(tempfile.mkdtemp(dir=contenders.ROOT / "bench" / "results"))
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
    ]
    command += ["-nodes", "-keyout", str(key), "-out", str(certificate), "-subj", "/CN=x"]
    subprocess.run(command, check=True, capture_output=True)
    flags = ["--tls", f"--tlscert={certificate}", f"--tlskey={key}"]
    is_ours = contender is contenders.HEADRACE
    start = peers.start_headrace if is_ours else peers.start_nats_server
    server = start(directory / "server", flags=flags)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory)


def measure(contender: Contender, attack: Attack, seconds: float, scale: float) -> Probe:
    probe = Probe()
    with started(contender, tls=attack.tls) as server:
        target = Target(server.host, server.port, scale)
        if attack.prepare is not None:
            attack.prepare(target)
        client = GoodClient(server, attack.tls)
        attacker = multiprocessing.get_context("fork").Process(
            target=attack.run, args=(target,), daemon=True
        )
        attacker.start()
        try:
            watch(client, probe, server.process.pid, seconds)
        finally:
            alive = attacker.is_alive()
            attacker.kill()
            attacker.join()
            client.close()
        if not alive:
            probe.lost = "the attacker gave up"
    return probe


def run(
    servers: list[Contender],
    *,
    quick: bool = False,
    seconds: float | None = None,
    only: Sequence[str] = (),
) -> None:
    """Every attack against every server; nobody's bars but ours are claims."""
    scale = 0.2 if quick else 1.0
    seconds = seconds or (2.5 if quick else 10.0)
    rows: list[list[str]] = []
    figures: dict[str, Any] = {}
    for attack in ATTACKS:
        if only and not any(part.lower() in attack.name.lower() for part in only):
            continue
        for contender in servers:
            probe = measure(contender, attack, seconds, scale)
            cells = [f"{percentile(probe.pings, share):.1f}" for share in (0.5, 0.99, 1.0)]
            cells += [f"{probe.publish_p99():.1f}", f"{probe.growth_mib:.0f}"]
            cells += [f"{100 * probe.queued:.0f}", probe.missed]
            rows.append([attack.name, contender.name, *cells])
            print(f"  {attack.name}: {contender.name}: {' | '.join(cells)}", flush=True)
            figures[f"{attack.name} / {contender.name}"] = {
                "ping_p50_ms": percentile(probe.pings, 0.5),
                "ping_p99_ms": probe.ping_p99(),
                "ping_max_ms": percentile(probe.pings, 1.0),
                "publish_p99_ms": probe.publish_p99(),
                "growth_mib": probe.growth_mib,
                "queued": probe.queued,
                "missed": probe.missed,
            }
            if contender is contenders.HEADRACE:
                claim(attack, probe)
    report.table(
        f"A good client beside a hostile one, {seconds:g} s each",
        HEAD,
        rows,
    )
    report.write("fairness", {"seconds": seconds, "scale": scale, "figures": figures})


def claim(attack: Attack, probe: Probe) -> None:
    text = f"beside {attack.name}"
    if probe.lost:
        report.claim(f"{text}: served", probe.lost, 0, at_least=1)
    report.claim(f"ping p99 {text}", "ms", probe.ping_p99(), at_most=PING_P99_MS, unit="ms")
    report.claim(
        f"publish p99 {text}", "ms", probe.publish_p99(), at_most=PUBLISH_P99_MS, unit="ms"
    )
    report.claim(f"memory {text}", "MiB", probe.growth_mib, at_most=GROWTH_MIB, unit="MiB")
