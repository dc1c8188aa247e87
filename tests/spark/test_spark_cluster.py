"""A declared pipeline on a Spark cluster, beside NATS servers with TLS and credentials; both lose a part.

``make spark-cluster`` runs it (minutes, six JVMs). The suite proves what a task imports from what is shipped
(``test_shipping.py``), and leaders killed under a query without Spark.
"""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import shipping
from certificates import self_signed
from headrace.errors import HeadraceError
from headrace.spark.links.control import Control
from headrace.spark.links.link import Link
from headrace.spark.options import Connection
from headrace.spark.reading.gets import MessageGets
from headrace.sync import connect
from headrace.sync.groups import PartitioningFilter, elastic
from nats_cluster import Cluster
from spark_standalone import LEAN, Standalone
from token_forge import Key, credentials, token
from waiting import until_here

pytestmark = [
    pytest.mark.spark,
    pytest.mark.peer,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(
        not os.environ.get("HEADRACE_SPARK_CLUSTER"), reason="make spark-cluster runs it"
    ),
]

PART = 1500  # messages of each stream between two events
WITHIN_S = 900.0
STARTS_MAX = 6
TOLD = (b"jetstream", b"JetStream", b"headrace", b"PLAIN")
ALL = {"subs": -1, "data": -1, "payload": -1}
LIMITS = {
    **ALL, "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1, "conn": -1,
    "imports": -1, "exports": -1, "wildcards": True,
}  # fmt: skip

FILE = '''
[pipeline]
name = "both"
checkpoint = "checkpoint"

[spark]
master = "{master}"

[spark.conf]
"spark.driver.host" = "127.0.0.1"
"spark.driver.memory" = "512m"
"spark.driver.extraJavaOptions" = "{lean}"
"spark.executor.extraJavaOptions" = "{lean}"
"spark.executor.memory" = "512m"
"spark.executor.cores" = "1"
"spark.cores.max" = "2"
"spark.sql.shuffle.partitions" = "2"
"spark.log.level" = "INFO"
"spark.eventLog.enabled" = "true"
"spark.eventLog.compress" = "false"
"spark.eventLog.dir" = "{events}"
{shipping}

[sources.plain]
options = {{ stream = "PLAIN", durable = "spark", maxOffsetsPerTrigger = 400, minPartitions = 2, {login} }}

[sources.grouped]
options = {{ stream = "KEYED", group = "work", member = "spark", maxOffsetsPerTrigger = 400, {login} }}

[views.both]
sql = """
SELECT 'OUT.plain' AS subject, data FROM plain
UNION ALL SELECT 'OUT.grouped' AS subject, data FROM grouped
"""

[sinks.out]
from = "both"
format = "jetstream"
options = {{ stream = "OUT", delivery = "exactlyOnce", sinkId = "both", {login} }}
'''


@dataclass
class Nats:
    """Three servers that want TLS and a user's token, and the secrets of that user."""

    cluster: Cluster
    ca: str
    creds: str
    user: Key
    jwt: str

    @property
    def connection(self) -> Connection:
        return Connection(tuple(self.cluster.urls.split(",")), creds=self.creds, tls_ca=self.ca)

    def publish(self, stream: str, first: int, last: int) -> None:
        """Messages with these numbers, each stored once: an answer that is lost is asked for again."""
        for at in range(first, last + 1, 250):
            numbers = range(at, min(at + 250, last + 1))
            asked = [(f"{stream}.k{number % 7}", b"m%d" % number) for number in numbers]
            blocks = [
                b"NATS/1.0\r\nNats-Msg-Id: %s-%d\r\n\r\n" % (stream.encode(), number)
                for number in numbers
            ]
            until_here(lambda: self._stored(asked, blocks), "no leader", within=WITHIN_S, every=0.2)  # noqa: B023

    def _stored(self, asked: list[tuple[str, bytes]], blocks: list[bytes]) -> bool:
        try:
            link = Link.open(self.connection)
            try:
                return all(b'"seq"' in each.payload for each in link.request_many(asked, blocks))
            finally:
                link.close()
        except HeadraceError:
            return False

    def rows(self) -> Counter[tuple[str, str]]:
        """What the target has: subject and payload, without markers."""
        link = Link.open(self.connection)
        try:
            last = Control(link, "OUT").stream_info().state.last_seq
            gets = MessageGets(link, "OUT", 5.0)
            gets.ask(range(1, last + 1))
            rows = gets.take()
            return Counter(
                (subject.decode(), payload.decode())
                for subject, payload in zip(rows.subjects, rows.payloads, strict=True)
                if subject.startswith(b"OUT.")
            )
        except HeadraceError:
            return Counter()  # a leader is being elected
        finally:
            link.close()


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[Nats]:
    folder = tmp_path / "secrets"
    folder.mkdir()
    self_signed(folder, name="nats")
    operator, system, account, user = Key("O"), Key("A"), Key("A"), Key("U")
    (folder / "op.jwt").write_text(token(operator, operator, "operator"))
    jwt = token(account, user, "user", **ALL)
    (folder / "user.creds").write_text(credentials(jwt, user))
    config = f"""
        operator: "{folder}/op.jwt"
        system_account: {system.public}
        resolver: MEMORY
        resolver_preload {{
            {system.public}: {token(operator, system, "account", limits=ALL)}
            {account.public}: {token(operator, account, "account", limits=LIMITS)}
        }}
        tls {{ cert_file: "{folder}/cert.pem", key_file: "{folder}/key.pem" }}
    """
    with Cluster(tmp_path / "nats", config) as cluster:
        yield Nats(cluster, str(folder / "cert.pem"), str(folder / "user.creds"), user, jwt)


def create(nats: Nats) -> None:
    context = ssl.create_default_context(cafile=nats.ca)
    servers = nats.cluster.urls
    with connect(servers, credentials_file=nats.creds, tls=context) as connection:
        js = connection.jetstream()
        for name in ("PLAIN", "KEYED"):
            js.create_stream(name=name, subjects=[f"{name}.*"], num_replicas=3)
        subjects = ["OUT.>", "_sink.OUT.>"]
        js.create_stream(name="OUT", subjects=subjects, num_replicas=3, allow_atomic=True)
        filters = [PartitioningFilter("KEYED.*", (1,))]
        elastic.create(js, "KEYED", "work", 4, partitioning_filters=filters)
        elastic.add_members(js, "KEYED", "work", ["spark"])


class Runner:
    """``headrace pipeline run FILE`` as a process, in a folder of its own.

    Spark waits ten seconds for a Python process that it has started. A busy machine needs longer at
    times: then the pipeline ends, and is started again, as somebody would do.
    """

    def __init__(self, file: Path, env: dict[str, str]) -> None:
        self._file = file
        self._env = {**os.environ, **env}
        self._started = 0
        self._start()

    def _start(self) -> None:
        self._started += 1
        self.said = self._file.with_name(f"said-{self._started}.jsonl")
        with self.said.open("wb") as sink:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace", "pipeline", "run", self._file.name],
                cwd=self._file.parent,
                env=self._env,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )

    def keep_going(self) -> None:
        if self.process.poll() is not None:
            said = self.said.read_text()
            assert "Python worker failed to connect back" in said, said[-3000:]
            assert self._started < STARTS_MAX, said[-3000:]
            self._start()

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(300) == 0, self.said.read_text()[-3000:]

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def shipped_as(kind: str, folder: Path) -> tuple[str, dict[str, str], str]:
    """Settings of Spark, variables of the driver, and how executors call their Python."""
    if kind == "py-files":
        file = shipping.zipped(folder / "headrace.zip")
        python = shipping.bare_python(folder / "bare")
        settings = (
            f'"spark.submit.pyFiles" = "{file}"\n"spark.pyspark.python" = "{python}"\n'
            '"spark.executorEnv.PYTHONPATH" = "headrace.zip"'
        )
        return settings, {"PYTHONPATH": str(file)}, str(python)
    file = shipping.archive(folder / "made", folder / "environment.tar.gz")
    (folder / "environment").symlink_to(sys.prefix)
    settings = (
        f'"spark.archives" = "{file}#environment"\n'
        '"spark.pyspark.python" = "environment/bin/python"'
    )
    return settings, {}, "environment/bin/python"


@pytest.mark.parametrize("kind", ["py-files", "archive"])
def test_each_row_is_stored_once_though_a_leader_and_a_worker_are_killed(
    kind: str, nats: Nats, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    create(nats)
    home = tmp_path / "home"
    events = tmp_path / "events"
    for each in (home, events):
        each.mkdir()
    settings, env, python = shipped_as(kind, home)
    login = f'servers = "{nats.cluster.urls}", tlsCa = "{nats.ca}", '
    if kind == "py-files":
        login += 'jwt = "${USER_JWT}", nkeySeed = "${USER_SEED}"'
        env |= {"USER_JWT": nats.jwt, "USER_SEED": nats.user.seed}
    else:
        login += f'creds = "{nats.creds}"'
    with Standalone(tmp_path / "spark") as spark:
        text = FILE.format(
            master=spark.url, lean=LEAN, events=events.as_uri(), shipping=settings, login=login
        )
        file = home / "both.toml"
        file.write_text(text)
        for stream in ("PLAIN", "KEYED"):
            nats.publish(stream, 1, PART)
        runner = Runner(file, {**env, "SPARK_LOCAL_IP": "127.0.0.1"})
        request.addfinalizer(runner.kill)
        pythons: set[str] = set()

        def are_there(rows: int) -> bool:
            runner.keep_going()
            pythons.update(spark.pythons())
            found = nats.rows()
            least = min(
                sum(count for (name, _), count in found.items() if name == subject)
                for subject in ("OUT.plain", "OUT.grouped")
            )
            return least >= rows

        def wait_for(rows: int) -> None:
            until_here(
                lambda: are_there(rows), f"{rows} rows do not come", within=WITHIN_S, every=0.5
            )

        wait_for(1)
        leader = nats.cluster.wait_for_leader("OUT")
        leader.kill()
        more = [
            threading.Thread(target=nats.publish, args=(stream, PART + 1, 2 * PART))
            for stream in ("PLAIN", "KEYED")
        ]
        for thread in more:
            thread.start()
        wait_for(PART)
        spark.kill_worker(1)
        leader.start_again()
        for thread in more:
            thread.join()
        for stream in ("PLAIN", "KEYED"):
            nats.publish(stream, 2 * PART + 1, 3 * PART)
        wait_for(3 * PART)
        runner.end()
        assert nats.rows() == Counter(
            (subject, f"m{number}")
            for subject in ("OUT.plain", "OUT.grouped")
            for number in range(1, 3 * PART + 1)
        )
        # Executors had no other Python, and in this one the package is what was shipped.
        assert pythons == {python}
        told = no_secret_in(tmp_path, [nats.user.seed, nats.jwt.rpartition(".")[2]], home)
        # The search would have found something: it saw the source in events, logs and the checkpoint.
        assert {"events", "spark", "home"} <= told, told


def no_secret_in(folder: Path, secrets: list[str], home: Path) -> set[str]:
    """Look into all that Spark and the pipeline wrote. Returns the folders in which our source is named."""
    told = set()
    mine = {home / "environment", home / "made", home / "bare"}
    for base, folders, files in os.walk(folder):
        here = Path(base)
        folders[:] = [
            name
            for name in folders
            if not (here == folder and name in ("secrets", "nats"))
            and here / name not in mine
            and not (here / name / "pyvenv.cfg").exists()
        ]
        for name in files:
            content = (here / name).read_bytes()
            for secret in secrets:
                assert secret.encode() not in content, f"a secret is in {here / name}"
            if any(word in content for word in TOLD):
                told.add((here / name).relative_to(folder).parts[0])
    return told
