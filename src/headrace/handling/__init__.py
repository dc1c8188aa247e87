"""Handlers at work, of consumers and of groups: which message may be begun, and what follows a failure.

``calls`` calls a handler and sees to what it raised, in a lane: awaited where messages are read, or one of
several beside the reader (``lanes``). A plain function has a thread (``threads``), which takes one message
after the other by itself. ``waiting`` keeps what came, in the order of each key (``key_order``), and what is
handled now. ``failure`` has the policies, ``failing`` carries them out, and ``dead_letter_headers`` says what
a dead letter tells. ``callbacks``: what users hand in to be called.

Begin with ``calls``. Its sources are ``client.jetstream.consuming`` for a consumer's handlers,
``groups.member.handlers`` for a group's, and ``jobs.client.worker`` for jobs.
"""
