"""What can go wrong with a group, as one small tree below ``HeadraceError``.

GroupError
├── GroupConfigurationError     a group's settings are wrong: which, and what is accepted
├── GroupExistsError            a group of that name exists with other settings
├── GroupNotFoundError          there is no such group
├── GroupRecordError            the stored record cannot be read, or asks for what this version cannot do
├── GroupChangedError           the group was changed in a way its members cannot follow
├── MemberNotActiveError        no instance of the member reads, so none can step down
├── NotAMemberError             the name is in no membership list of the group
├── NotOwnedError               the message's partition has another owner by now
│   └── NotConfirmedError       … and whether it was acknowledged is not known
└── HandlerFailedError          a member's handler failed, and its policy is to stop
"""

from __future__ import annotations

from ..errors import ConfigurationError, HeadraceError
from ..errors import HandlerFailedError as _HandlerFailedError


class GroupError(HeadraceError):
    """The root of what the groups raise on purpose."""


class GroupConfigurationError(GroupError, ConfigurationError):
    """A setting of a group is wrong. The text names it and says what is accepted."""


class GroupExistsError(GroupError):
    """A group of that name exists with other settings, or would share a consumer or stream with another."""


class GroupNotFoundError(GroupError):
    """There is no group of that name on the stream."""


class GroupRecordError(GroupError):
    """The stored record is damaged, invalid, or names a layout this version does not know."""


class GroupChangedError(GroupError):
    """What is fixed when a group is created was changed under its members."""


class MemberNotActiveError(GroupError):
    """No instance of the member reads, so there is none that could step down."""


class NotAMemberError(GroupError):
    """The group does not list the name."""


class NotOwnedError(GroupError):
    """The message's partition has another owner by now, or may have. It was not acknowledged.

    Attributes:
        in_doubt: an acknowledgement was sent and not answered: it may be acknowledged after all.
    """

    def __init__(self, text: str, *, in_doubt: bool = False) -> None:
        super().__init__(text)
        self.in_doubt = in_doubt


class NotConfirmedError(NotOwnedError):
    """An acknowledgement was sent, and no confirmation came that counts: no answer, and the server was
    restarted; or an answer when the partition might have had another owner. The message may be
    acknowledged or not; ``in_doubt`` is true."""

    def __init__(self, text: str) -> None:
        super().__init__(text, in_doubt=True)


class HandlerFailedError(GroupError, _HandlerFailedError):
    """A member's handler failed, and its policy was to stop. ``__cause__`` is what it raised."""
