"""How near an account is to its limits. Pure."""

from __future__ import annotations

from ..api.messages import AccountInfo
from ..quantities import bytes_text
from .finding import Findings
from .streams import FULL


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
