"""``headrace auth …``: operators, accounts and users of decentralised authentication, kept in a folder.

``tokens`` is pure: key pairs, what they sign, and what it says. ``folder`` is where both are kept. The verbs
follow the nouns: ``operator``, ``account``, ``user``.
"""
