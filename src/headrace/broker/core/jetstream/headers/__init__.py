"""Header blocks and reply subjects, read and written; pure, and handed bytes.

``published`` reads what a stream looks at in a message, ``ttl`` how long it lives, ``source`` where a copy
comes from, ``fast_reply`` the reply of a fast batch; ``statuses`` makes the blocks of statuses.
"""
