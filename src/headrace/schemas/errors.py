"""What can go wrong with schemas, apart from what is configured."""

from __future__ import annotations

from ..errors import HeadraceError


class NoSchemaError(ValueError):
    """A message does not say which schema it was written with, or nobody knows it."""


class UnfitError(ValueError):
    """A value does not fit its schema. The text begins with the field, where that is known."""


class RegistryAwayError(HeadraceError):
    """The registry does not answer, or says that it cannot now: it may be back soon."""


class LookupEndedError(HeadraceError):
    """The lookup has ended: no more is looked up."""
