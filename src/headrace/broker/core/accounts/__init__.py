"""Accounts: worlds of subjects of their own, and what they let each other see.

This room decides which account has JetStream, whose storage is where, and how a message gets from one
account into another. It is handed the account options, a storage and the hub's timers. Begin with
``accounts``, which knows of copies across accounts, too; ``links`` has exports and imports, ``storage`` the
prefix of each account.
"""

from __future__ import annotations
