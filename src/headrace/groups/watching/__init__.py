"""Whether a group gets on: what waits and with whom, what it can ever reach, why it stands still.

``progress`` and ``reach`` are pure; ``trouble`` asks the server. Begin reading at ``progress``.
"""
