"""``headrace auth …``: operators, accounts and users of decentralised authentication, kept in a folder.

``keys`` and ``tokens`` are pure: key pairs, and what they sign. ``folder`` is where both are kept, ``claims``
what a token says. The verbs follow the nouns: ``operator``, ``account``, ``user``.
"""

from __future__ import annotations

from ..shared.lazy import LazyGroup, Verb

_operator = LazyGroup(
    "operator",
    {
        "create": Verb("make an operator", "auth.operator:create", ("add",)),
        "info": Verb("show the operator", "auth.operator:info", ("show",)),
        "key": Verb("make another signing key", "auth.operator:key"),
    },
    "The operator, who signs accounts.",
)
_account = LazyGroup(
    "account",
    {
        "ls": Verb("list the accounts", "auth.account:ls", ("list",)),
        "create": Verb("make an account", "auth.account:create", ("add",)),
        "info": Verb("show an account and its limits", "auth.account:info", ("show",)),
        "edit": Verb("change the limits of an account", "auth.account:edit", ("update",)),
        "key": Verb("make another signing key", "auth.account:key"),
    },
    "Accounts, which sign their users.",
)
_user = LazyGroup(
    "user",
    {
        "ls": Verb("list the users of an account", "auth.user:ls", ("list",)),
        "create": Verb("make a user and its credentials file", "auth.user:create", ("add",)),
        "info": Verb("show what a user may do", "auth.user:info", ("show",)),
        "revoke": Verb("accept the credentials of a user no longer", "auth.user:revoke"),
    },
    "Users, who connect with a credentials file.",
)

auth = LazyGroup(
    "auth",
    {
        "operator": Verb("the operator, who signs accounts", _operator),
        "account": Verb("accounts, which sign their users", _account),
        "user": Verb("users, and their credentials files", _user),
        "config": Verb("write what a server needs to know", "auth.server:config"),
        "nkey": Verb("make a key pair", "auth.server:nkey"),
    },
    "Operators, accounts and users for servers that trust signed tokens.",
)
