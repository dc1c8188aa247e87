"""Findings about accounts: how near one is to its limits, and what is wrong in all of a server. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from ..api.base import from_wire
from ..api.consumers import ConsumerInfo
from ..api.messages import AccountInfo
from ..api.streams import StreamInfo
from ..quantities import bytes_text, counted
from .consumers import judge_consumer
from .finding import Findings
from .streams import FULL, judge_stream


def judge_account(findings: Findings, account: AccountInfo) -> None:
    """Judge what an account uses of what it may."""
    limits = account.limits
    for what, used, most in (
        ("disk limit", account.storage, limits.max_storage),
        ("memory limit", account.memory, limits.max_memory),
    ):
        if most > 0 and used > most * FULL:
            text = f"{bytes_text(used)} of {bytes_text(most)} are used"
            mend = "headrace stream report    shows who holds what"
            findings.problem(what, text, mend, name="account-full", used=used, limit=most)
    for what, used, most in (
        ("streams", account.streams, limits.max_streams),
        ("consumers", account.consumers, limits.max_consumers),
    ):
        if most > 0 and used >= most:
            text = f"{used:,} of {most:,} allowed: no more can be created"
            findings.problem(what, text, name="account-full", used=used, limit=most)


def judge_accounts(findings: Findings, servers: Iterable[Mapping[str, Any]], now: datetime) -> None:
    """Judge the streams and consumers of all accounts, as monitoring's page ``jsz`` tells them.

    Of several servers' pages, the leader of a stream is believed.

    Raises:
        DocumentError: a page has another form.
    """
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    accounts: set[str] = set()
    for page in servers:
        for account in page.get("account_details") or ():
            accounts.add(account["name"])
            for each in account.get("stream_detail") or ():
                key = account["name"], each["name"]
                is_leader = (each.get("cluster") or {}).get("leader") == page.get("server_name")
                if key not in found or is_leader:
                    found[key] = each
    before = len(findings.found)
    for (account_name, _), detail in sorted(found.items()):
        own = Findings()
        consumers = [from_wire(each, ConsumerInfo) for each in detail.get("consumer_detail") or ()]
        judge_stream(own, from_wire(dict(detail), StreamInfo), consumers)
        for consumer in consumers:
            judge_consumer(own, consumer, now)
        findings.found += (
            replace(each, what=f"account {account_name}: {each.what}") for each in own.found
        )
    if all(each.grade == "ok" for each in findings.found[before:]):
        text = f"nothing wrong in {counted(len(found), 'stream')} of {counted(len(accounts), 'account')}"
        findings.ok("accounts", text)
