"""Links to the pages of a list beside the one that is shown."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from ...service.finding.page_reads import Page

__all__ = ["list_links"]


def list_links(path: str, found: Page, **filters: str | Sequence[str]) -> dict[str, str]:
    """Links to the adjacent pages; filters are kept, those with several values as often."""
    kept = f"&{urlencode(filters, doseq=True, safe=',')}" if filters else ""
    links = {"next": found.next, "previous": found.previous}
    return {name: f"{path}?{name}={cursor}{kept}" for name, cursor in links.items() if cursor}
