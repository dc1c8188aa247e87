"""The service speaks TLS, with a certificate that is changed while it runs."""

from __future__ import annotations

import asyncio
import signal
import ssl
from functools import partial
from pathlib import Path

import pytest

from certificates import self_signed
from headrace.cli import main
from headrace.errors import ConfigurationError
from headrace.jobs.client import AsyncJobsClient, JobsClient
from headrace.jobs.config import load_config
from headrace.jobs.errors import JobsError
from headrace.jobs.server import serve
from waiting import until

pytestmark = pytest.mark.one_database


def make(directory: Path, name: str) -> Path:
    """A certificate for 127.0.0.1, signed by itself; its key lies beside it."""
    made = directory / name
    made.mkdir()
    certificate, key = self_signed(made, name=name)
    key.rename(certificate.with_suffix(".key"))
    return certificate


def trusting(path: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(path))


async def test_it_answers_over_tls_and_takes_another_certificate_while_it_runs(
    tmp_path: Path,
    database_url: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = make(tmp_path, "first"), make(tmp_path, "second")
    served = tmp_path / "served.pem", tmp_path / "served.key"

    def use(certificate: Path, key: Path) -> None:
        served[0].write_bytes(certificate.read_bytes())
        served[1].write_bytes(key.read_bytes())

    async def reload(said: str) -> None:
        caplog.clear()
        signal.raise_signal(signal.SIGHUP)
        await until(lambda: said in caplog.text, f"never said: {said}")

    use(first, first.with_suffix(".key"))
    config = tmp_path / "jobs.toml"
    config.write_text(f"[tls]\ncert = {str(served[0])!r}\nkey = {str(served[1])!r}\n")
    caplog.set_level("INFO", "headrace.jobs")
    read = partial(load_config, config, {"database": database_url, "port": 0, "push": False})
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(read(), address.set_result, read))
    async with asyncio.timeout(60):
        url = await address
        assert url.startswith("https://127.0.0.1:")

        async def is_trusted(certificate: Path) -> bool:
            try:
                async with AsyncJobsClient(url, tls=trusting(certificate)) as client:
                    await client.status()
            except JobsError as error:
                assert error.code == "unreachable"
                return False
            return True

        assert await is_trusted(first)
        assert not await is_trusted(second)
        with pytest.raises(JobsError, match=r"^the service did not answer: "):
            async with AsyncJobsClient(url.replace("https", "http")) as client:
                await client.status()
        use(second, first.with_suffix(".key"))  # a pair that does not fit
        await reload("nothing has changed")
        assert await is_trusted(first)
        use(second, second.with_suffix(".key"))
        await reload("was read again")
        assert await is_trusted(second)
        assert not await is_trusted(first)

        def blocking() -> None:
            with JobsClient(url, tls=trusting(second)) as client:
                client.status()

        await asyncio.to_thread(blocking)
        monkeypatch.setenv("HEADRACE_JOBS_CA_FILE", str(second))
        assert await asyncio.to_thread(main, ["jobs", "status", "--url", url]) == 0
        monkeypatch.setenv("HEADRACE_JOBS_CA_FILE", str(tmp_path / "none"))
        assert await asyncio.to_thread(main, ["jobs", "status", "--url", url]) == 1
        assert "HEADRACE_JOBS_CA_FILE" in capsys.readouterr().err
        plain = url.replace(
            "https", "http"
        )  # where nobody shows a certificate the file is not read
        assert await asyncio.to_thread(main, ["jobs", "status", "--url", plain]) == 3
        assert "HEADRACE_JOBS_CA_FILE" not in capsys.readouterr().err
        signal.raise_signal(signal.SIGTERM)
        await task


def test_files_that_cannot_be_used_are_said_in_words(tmp_path: Path) -> None:
    certificate, other = make(tmp_path, "one"), make(tmp_path, "other")
    for cert, key in (
        (tmp_path / "none", certificate.with_suffix(".key")),
        (certificate, other.with_suffix(".key")),
        (certificate, certificate),
    ):
        config = load_config(None, {"tls": {"cert": str(cert), "key": str(key)}})
        assert config.tls is not None
        with pytest.raises(ConfigurationError, match="matching PEM files without passphrase"):
            config.tls.context()
