"""The idempotent consumer of ``examples``: its page, and what is booked when a message comes again."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

import guides
import peers
from headrace.client import JetStream
from headrace.testing import made_message

EXAMPLE = guides.ROOT / "examples" / "idempotent.py"


@pytest.fixture(scope="module")
def example() -> Any:
    return guides.load(EXAMPLE)


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "books.db")
    url: str = request.getfixturevalue("postgres")
    return url


def test_the_page_shows_the_example() -> None:
    (block,) = guides.blocks_of(guides.ROOT / "docs" / "how-to" / "idempotent.md")
    assert block.code == EXAMPLE.read_text()


@pytest.mark.peer
async def test_what_comes_again_is_booked_once(
    reference_server: peers.ServerProcess,
    js: JetStream,
    example: Any,
    where: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    books = example.Books(where)
    books.database.execute("DELETE FROM accounts")
    books.database.commit()
    books.database.close()
    await example.main(where, reference_server.url)
    *lines, balances = capsys.readouterr().out.splitlines()
    assert sum("done already" in line for line in lines if '"amount":30' in line) >= 1
    assert not any(" booked" in line for line in lines if '"amount":30' in line)
    assert balances == "balances: {'eve': 60}"


def test_a_booking_that_fails_is_not_noted_as_done(example: Any, where: str) -> None:
    books = example.Books(where)
    customer = uuid.uuid4().hex
    message = made_message({"customer": customer, "amount": 5}, stream=customer)
    books.database.execute("ALTER TABLE accounts RENAME TO elsewhere")
    books.database.commit()
    with pytest.raises(Exception, match="accounts"):
        books.book(message)
    books.database.execute("ALTER TABLE elsewhere RENAME TO accounts")
    books.database.commit()
    assert [books.book(message) for _ in range(3)] == [True, False, False]
    assert books.balances()[customer] == 5
    books.database.close()
