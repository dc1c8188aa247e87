"""Who a client is, and what it may do.

An ``Authenticator`` takes what a client says in CONNECT and gives its ``Identity``: account, permissions
and limits. Keys are checked, and passwords compared with hashes, by what the shell hands in. Begin with
``authentication``; ``permissions`` says what a rule means, ``jwt_auth`` how signed tokens lead to an
identity.
"""

from __future__ import annotations
