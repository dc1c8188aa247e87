"""How a client proves who it is: credentials files and NKeys, which sign what the server sends.

``nkeys`` reads seeds and JWTs and signs a nonce; ``ed25519`` is the signature itself, in plain Python. The
room is handed text and bytes; it opens no connection. Begin with ``nkeys``.
"""
