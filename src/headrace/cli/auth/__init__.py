"""``headrace auth …``: operators, accounts and users of decentralised authentication, kept in a folder.

``keys`` and ``tokens`` are pure: key pairs, and what they sign. ``folder`` is where both are kept, ``claims``
what a token says. The verbs follow the nouns: ``operator``, ``account``, ``user``.
"""
