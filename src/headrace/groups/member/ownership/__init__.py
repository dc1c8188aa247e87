"""When an instance surely owns what it reads: its pin, its lease, what it takes over from the owner before.

``lease`` and ``takeover`` are pure; they are handed the time. Begin reading at ``lease``.
"""
