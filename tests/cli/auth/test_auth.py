"""headrace auth: what it makes lets users in at our broker and at nats-server, and keeps its secrets."""

from __future__ import annotations

import json
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import peers
from cli.conftest import Run
from headrace import AuthorizationError, HeadraceError, sync
from waiting import until_here

Start = Callable[[Path], peers.ServerProcess]


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where keys and tokens are kept."""
    monkeypatch.setenv("HEADRACE_AUTH_DIR", str(tmp_path / "auth"))
    return tmp_path / "auth"


@pytest.fixture
def made(headrace: Run) -> Run:
    """With an operator ACME, an account SHOP with two streams, and a user web."""
    for words in (
        ("operator", "create", "ACME"),
        ("account", "create", "SHOP", "--streams", "2", "--storage", "64M"),
        ("user", "create", "SHOP", "web", "--pub-deny", "secret.>"),
    ):
        assert headrace("auth", *words).status == 0, words
    return headrace


@pytest.fixture(params=["headrace", pytest.param("nats-server", marks=pytest.mark.peer)])
def serving(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """Start a server with an ``include`` of the file that ``auth config`` wrote."""
    started: list[peers.ServerProcess] = []

    def start(directory: Path) -> peers.ServerProcess:
        included = "include 'auth.conf'"
        if request.param == "nats-server":
            started.append(peers.start_nats_server(directory, config=included))
        else:
            (directory / "same.conf").write_text(included)
            flags = ["-c", str(directory / "same.conf")]
            started.append(peers.start_headrace(directory, flags=flags))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def configured(run: Run, directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    assert run("auth", "config", "--output", str(directory / "auth.conf")).status == 0
    return directory


def creds(folder: Path, name: str, account: str = "SHOP") -> str:
    return str(folder / "users" / account / f"{name}.creds")


def test_its_users_are_let_in_with_their_limits_and_permissions(
    made: Run, folder: Path, serving: Start, tmp_path: Path
) -> None:
    assert made("auth", "account", "key", "SHOP").status == 0
    assert made("auth", "user", "create", "SHOP", "late", "--expires", "1h").status == 0
    server = serving(configured(made, tmp_path / "server"))
    for name in ("web", "late"):  # signed by the account, and by its signing key
        with sync.connect(server.url, credentials_file=creds(folder, name)) as connection:
            js = connection.jetstream()
            js.create_or_update_stream(name=name, subjects=[name])
            assert js.publish(name, b"x").seq == 1
            limits = js.account_info().limits
            assert (limits.max_streams, limits.max_storage) == (2, 64 << 20)
    told: list[object] = []
    web = sync.connect(server.url, credentials_file=creds(folder, "web"), on_event=told.append)
    with web as connection:
        with pytest.raises(HeadraceError, match="maximum number of streams"):
            connection.jetstream().create_stream(name="third", subjects=["third"])
        connection.publish("secret.x", b"")
        connection.flush()
        until_here(lambda: any("ermissions" in repr(each) for each in told), within=60)
    with sync.connect(server.url, credentials_file=creds(folder, "sys", "SYS")) as connection:
        answer = connection.request("$SYS.REQ.SERVER.PING.VARZ", b"", timeout=60)
        assert "server_id" in json.loads(answer.payload)["data"]
    with pytest.raises(AuthorizationError):
        sync.connect(server.url)


def test_who_is_revoked_is_let_in_no_longer_once_the_server_reads_it(
    made: Run, folder: Path, serving: Start, tmp_path: Path
) -> None:
    server = serving(configured(made, tmp_path / "server"))
    mine = tmp_path / "mine.creds"
    mine.write_text(Path(creds(folder, "web")).read_text())
    sync.connect(server.url, credentials_file=str(mine)).close()
    assert made("auth", "user", "revoke", "SHOP", "web", answer="n\n").status == 1
    assert made("auth", "user", "revoke", "SHOP", "web", "--dry-run").status == 0
    assert Path(creds(folder, "web")).exists()
    assert made("auth", "user", "revoke", "SHOP", "web", "--force").status == 0
    assert not Path(creds(folder, "web")).exists()
    assert made("auth", "user", "create", "SHOP", "web").status == 0  # the name is free again
    configured(made, tmp_path / "server")
    server.process.send_signal(signal.SIGHUP)

    def is_refused() -> bool:
        try:
            sync.connect(server.url, credentials_file=str(mine)).close()
        except AuthorizationError:
            return True
        return False

    until_here(is_refused, "it is let in for ever", within=60)
    sync.connect(server.url, credentials_file=creds(folder, "web")).close()


def test_accounts_are_apart_and_one_without_streams_has_none(
    made: Run, folder: Path, serving: Start, tmp_path: Path
) -> None:
    made("auth", "account", "create", "PLAIN", "--no-jetstream")
    made("auth", "user", "create", "PLAIN", "p")
    server = serving(configured(made, tmp_path / "server"))
    with (
        sync.connect(server.url, credentials_file=creds(folder, "p", "PLAIN")) as plain,
        sync.connect(server.url, credentials_file=creds(folder, "web")) as web,
    ):
        heard = plain.subscribe("a")
        plain.flush()
        web.publish("a", b"from another account")
        web.flush()
        plain.publish("a", b"own")
        assert heard.next(60).payload == b"own"
        with pytest.raises(HeadraceError, match="not enabled"):
            plain.jetstream().account_info()


def test_nobody_else_can_read_what_it_writes(made: Run, folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "given" / "app.creds"
    done = made("auth", "user", "create", "SHOP", "app", "--output", str(elsewhere))
    assert str(elsewhere) in done.out
    made("auth", "nkey", "user", "--output", str(tmp_path / "user.nk"))
    written = [*folder.rglob("*.*"), elsewhere, tmp_path / "user.nk"]
    assert len(written) > 8
    for path in (path for path in written if path.is_file()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_no_secret_is_shown(made: Run, folder: Path) -> None:
    secrets = [path.read_text().strip() for path in folder.rglob("*.nk")]
    assert len(secrets) == 4
    secrets += Path(creds(folder, "web")).read_text().split()[-5:-4]
    shown = ""
    for words in (
        ("operator", "info"),
        ("account", "ls"),
        ("account", "info", "SHOP"),
        ("user", "ls", "SHOP"),
        ("user", "info", "SHOP", "web"),
        ("config",),
    ):
        for form in ((), ("--json",)):
            done = made("auth", *words, *form)
            assert done.status == 0, (words, done)
            shown += done.out
    for secret in secrets:
        assert secret.startswith("S")
        assert secret not in shown


def test_what_there_is_is_told_to_programs(made: Run) -> None:
    account = made("auth", "account", "info", "SHOP", "--json").told
    assert account["limits"]["streams"] == 2 and account["users"] == ["web"]
    user = made("auth", "user", "info", "SHOP", "web", "--json").told
    assert user["pub_deny"] == ["secret.>"] and user["pub_allow"] == []
    assert made("auth", "operator", "info", "--json").told["accounts"] == ["SHOP", "SYS"]
    assert made("auth", "account", "edit", "SHOP", "--streams", "-1").status == 0
    assert made("auth", "account", "info", "SHOP", "--json").told["limits"]["streams"] == -1
    assert "no limit" in made("auth", "account", "info", "SHOP").out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["operator", "create", "OTHER"], "there is an operator ACME"),
        (["account", "create", "SHOP"], "there is an account SHOP"),
        (["account", "info", "SHIP"], "there are: SHOP, SYS"),
        (["account", "edit", "SHOP"], "nothing to change"),
        (["account", "create", "../up"], "cannot be a name"),
        (["account", "create", "a-signing"], "cannot be a name"),
        (["user", "create", "SHOP", "web"], "has a user 'web' already"),
        (["user", "create", "SHOP", "x", "--pub-allow", "a..b"], "--pub-allow a..b"),
        (["user", "info", "SHOP", "nobody"], "there are: web"),
        (["user", "create", "NONE", "x"], "there is no account 'NONE'"),
    ],
)
def test_a_mistake_is_a_sentence(made: Run, words: list[str], told: str) -> None:
    done = made("auth", *words)
    assert done.status == 1 and told in done.err and "Traceback" not in done.err


def test_without_an_operator_it_says_how_to_make_one(headrace: Run) -> None:
    for words in (("account", "ls"), ("account", "create", "A"), ("config",)):
        done = headrace("auth", *words)
        assert done.status == 1 and "headrace auth operator create NAME" in done.err


def test_a_token_that_was_changed_is_not_signed_again(made: Run, folder: Path) -> None:
    path = folder / "accounts" / "SHOP.jwt"
    head, claims, signature = path.read_text().strip().split(".")
    other = made("auth", "account", "info", "SYS", "--json").told
    assert other["key"]
    system = (folder / "accounts" / "SYS.jwt").read_text().strip().split(".")
    for text in (f"{head}.{system[1]}.{signature}", f"{head}.{claims}.{signature[:-4]}AAAA", "x"):
        path.write_text(text)
        done = made("auth", "account", "edit", "SHOP", "--streams", "5")
        assert done.status == 1 and "accounts/SHOP.jwt" in done.err, done
        assert path.read_text() == text


def test_a_call_that_was_interrupted_goes_on_with_the_keys_that_are_there(
    made: Run, folder: Path
) -> None:
    seeds = {path.name: path.read_text() for path in folder.rglob("*.nk")}
    (folder / "operator.jwt").unlink()
    (folder / "users" / "SYS" / "sys.creds").unlink()
    assert made("auth", "operator", "create", "ACME").status == 0
    assert {path.name: path.read_text() for path in folder.rglob("*.nk")} == seeds
    assert made("auth", "account", "info", "SHOP").status == 0


def test_the_operators_own_seed_is_needed_for_another_signing_key_alone(
    made: Run, folder: Path
) -> None:
    kept = (folder / "operator.nk").rename(folder / "elsewhere")
    assert made("auth", "account", "create", "MORE").status == 0
    refused = made("auth", "operator", "key")
    assert refused.status == 1 and "operator.nk" in refused.err
    kept.rename(folder / "operator.nk")
    before: Any = made("auth", "operator", "info", "--json").told
    assert made("auth", "operator", "key").status == 0
    after: Any = made("auth", "operator", "info", "--json").told
    assert len(after["signing_keys"]) == len(before["signing_keys"]) + 1
    assert made("auth", "account", "info", "MORE").status == 0  # signed by the key before
    assert made("auth", "account", "create", "LAST").status == 0


def test_an_operator_that_was_made_by_half_is_made_whole_by_the_same_command(
    headrace: Run, folder: Path
) -> None:
    (folder / "accounts").mkdir(parents=True)
    (folder / "accounts" / "SYS.jwt").mkdir()  # so that it cannot be written
    (folder / "accounts" / "SYS.jwt" / "something").touch()
    failed = headrace("auth", "operator", "create", "ACME")
    assert failed.status == 1
    assert "SYS.jwt" in failed.err
    begun = (folder / "operator.jwt").read_text()
    (folder / "accounts" / "SYS.jwt" / "something").unlink()
    (folder / "accounts" / "SYS.jwt").rmdir()
    assert headrace("auth", "operator", "create", "ACME").status == 0
    assert (folder / "operator.jwt").read_text() == begun
    assert headrace("auth", "user", "info", "SYS", "sys").status == 0
    assert headrace("auth", "operator", "create", "ACME").status == 1


def test_a_user_whose_file_cannot_be_written_is_not_made(
    made: Run, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "no folder").touch()
    there = str(tmp_path / "no folder" / "bob.creds")
    assert made("auth", "user", "create", "SHOP", "bob", "--output", there).status == 1
    assert not Path(creds(folder, "bob")).exists()
    assert made("auth", "user", "create", "SHOP", "bob").status == 0
