"""A standalone Spark cluster on this machine, from PySpark's own classes: a master and two workers."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import peers
from waiting import until_here

__all__ = ["Standalone", "spark_home"]

READY_S = 180.0
LEAN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


class Standalone:
    """The cluster; a context manager. Its processes know nothing of this environment's Python."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self.logs: list[Path] = []
        self.port = peers.free_port()
        self.url = f"spark://127.0.0.1:{self.port}"
        directory.mkdir(parents=True, exist_ok=True)
        try:
            where = ["--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0"]
            self._start("master", "org.apache.spark.deploy.master.Master", *where)
            until_here(
                lambda: "I have been elected leader" in self._said(0), "no master", within=READY_S
            )
            for number in range(1, workers + 1):
                self.start_worker(number)
            for number in range(1, workers + 1):
                self.wait_for_worker(number)
        except BaseException:
            self.stop()
            raise

    def start_worker(self, number: int) -> None:
        self._start(
            f"worker{number}",
            "org.apache.spark.deploy.worker.Worker",
            *("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"),
            *("--work-dir", str(self.work_of(number)), self.url),
        )

    def wait_for_worker(self, number: int) -> None:
        until_here(
            lambda: "Successfully registered with master" in self._said(number),
            f"worker {number} does not find its master",
            within=READY_S,
        )

    def work_of(self, number: int) -> Path:
        """Where its executors work, and where their logs are."""
        return self._directory / f"work{number}"

    def kill_worker(self, number: int) -> None:
        """The worker with its executors and their Python."""
        process = self._processes[number]
        for each in self._of_session(process.pid):
            os.kill(each, signal.SIGKILL)
        process.wait()

    def pythons(self) -> set[str]:
        """The Pythons that executors run now, as they are called."""
        found = set()
        for process in self._processes[1:]:
            for pid in self._of_session(process.pid):
                arguments = _arguments(pid)
                if "pyspark.daemon" in arguments:
                    found.add(arguments[0])
        return found

    def _start(self, name: str, *command: str) -> None:
        log = self._directory / f"{name}.log"
        self.logs.append(log)
        ours = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("PYSPARK", "PYTHON", "SPARK", "VIRTUAL_ENV"))
        }
        ours |= {
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": LEAN,
        }
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [str(spark_home() / "bin" / "spark-class"), *command],
                cwd=self._directory,
                env=ours,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )
        self._processes.append(process)

    def _said(self, number: int) -> str:
        return self.logs[number].read_text(errors="replace")

    def _of_session(self, session: int) -> list[int]:
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue  # it has just ended
            if int(fields[3]) == session:
                found.append(int(stat.parent.name))
        return found

    def __enter__(self) -> Standalone:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        for process in reversed(self._processes):
            for pid in self._of_session(process.pid):
                os.kill(pid, signal.SIGKILL)
            process.wait()


def _arguments(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return []  # it has just ended
