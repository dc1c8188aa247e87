"""Streams of other accounts as origins of sources and mirrors, as imports and exports allow.

A source names the API of the other account as it is imported (``external.api``), and a prefix to deliver
under (``external.deliver``). nats-server asks that API for a consumer, which delivers to a subject that is
imported as well. Here nothing is sent, but the same has to be allowed: the request for the consumer must
get to the other account's API by imports of services, and its deliveries must get here by imports of
streams, under the subject they have there. What was allowed is looked at again whenever that changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from ....api.errors import Errors
from ....api.streams import StreamSource
from ..jetstream.sourcing.copies import Reach

if TYPE_CHECKING:
    from .accounts import Account

_API: Final = "$JS.API."
_HOPS_MAX: Final = 32  # accounts a request may go through; imports that go in circles are refused
_MADE_UP: Final = "00000000"  # for one that nobody knows: names and subjects made for the occasion


class Origins:
    """Finds streams over the accounts of one server."""

    def __init__(self, domain: str) -> None:
        self._domain_api = f"$JS.{domain}.API." if domain else ""
        self._accounts: list[Account] = []

    def configure(self, accounts: Iterable[Account]) -> None:
        """Over these accounts; what was allowed before is looked at again."""
        self._accounts = list(accounts)
        for account in self._accounts:
            if account.engine is not None:
                account.engine.copies.elsewhere = partial(self.reach, account)
        for account in self._accounts:
            if account.engine is not None:
                account.engine.copies.look_again_elsewhere()

    def reach(self, account: Account, source: StreamSource, *, is_mirror: bool) -> Reach:
        """Where the stream of an external source is, if ``account`` may copy it."""
        failed = (
            Errors.MIRROR_CONSUMER_SETUP_FAILED
            if is_mirror
            else Errors.SOURCE_CONSUMER_SETUP_FAILED
        )
        request = _request(source, is_mirror=is_mirror)
        owner, theirs = self._follow(account, request)
        if owner is None:
            return Reach(None, failed.with_(err=f"nobody answers {request}: it is not imported"))
        if owner.engine is None:
            return Reach(None, Errors.NOT_ENABLED_FOR_ACCOUNT)
        if theirs != _request(source, is_mirror=is_mirror, api=_API):
            return Reach(None, failed.with_(err=f"{request} is imported as {theirs}"))
        delivery = _delivery(source, is_mirror=is_mirror)
        # Where a consumer of its own delivers to is known when it is asked, and found out then.
        if source.consumer is None and not self._arrives(owner, account, delivery):
            text = f"{delivery} of the origin's account is not imported"
            return Reach(None, failed.with_(err=text))
        return Reach(owner.engine.copies)

    def _follow(self, account: Account, subject: str) -> tuple[Account | None, str]:
        """Who answers a request, and how it is called there."""
        for _ in range(_HOPS_MAX):
            if subject.startswith(_API):
                return account, subject
            if self._domain_api and subject.startswith(self._domain_api):
                return account, _API + subject.removeprefix(self._domain_api)
            for wanted in account.options.imports:
                theirs = (
                    wanted.transform().apply(subject.encode()) if wanted.kind == "service" else None
                )
                exporter = self._named(wanted.account)
                if theirs is not None and exporter is not None:
                    account, subject = exporter, theirs.decode()
                    break
            else:
                break
        return None, subject

    def _arrives(self, origin: Account, account: Account, subject: str) -> bool:
        """Whether what ``origin`` delivers there gets to ``account`` under the same subject."""
        frontier = {(origin, subject.encode())}
        for _ in range(_HOPS_MAX):
            if (account, subject.encode()) in frontier:
                return True
            frontier = {
                (importer, ours)
                for exporter, theirs in frontier
                for importer in self._accounts
                for wanted in importer.options.imports
                if wanted.kind == "stream" and wanted.account == exporter.name
                if (ours := wanted.transform().apply(theirs)) is not None
            }
        return False

    def _named(self, name: str) -> Account | None:
        return next((account for account in self._accounts if account.name == name), None)


def _request(source: StreamSource, *, is_mirror: bool, api: str = "") -> str:
    """The subject a consumer for this source would be asked for on, or a given one be reset on."""
    assert source.external is not None
    prefix = api or f"{source.external.api}."
    if source.consumer is not None:
        return f"{prefix}CONSUMER.RESET.{source.name}.{source.consumer.name}".replace("..", ".")
    filters = [rule.src or ">" for rule in source.subject_transforms]
    filter = source.filter_subject or (filters[0] if len(filters) == 1 else "")
    call = f"{prefix}CONSUMER.CREATE.{source.name}"
    if filter:
        call += f".JS_{'MIRROR' if is_mirror else 'SRC'}_{_MADE_UP}.{filter}"
    return call.replace("..", ".")


def _delivery(source: StreamSource, *, is_mirror: bool) -> str:
    """The subject such a consumer would deliver to."""
    assert source.external is not None
    prefix = source.external.deliver or "$JS"
    return f"{prefix}.{'M' if is_mirror else 'S'}.{_MADE_UP}".replace("..", ".")
