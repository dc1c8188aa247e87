"""Handlers at work, of consumers and of groups: which message may be begun, and what follows a failure.

``waiting`` keeps what came, in the order of each key (``key_order``), and what is handled now. ``lanes`` are
the tasks that take of it; a plain function has a thread (``threads``), which takes one message after the
other by itself (``turn``). ``failure`` has the policies, ``failing`` carries them out, and
``dead_letter_headers`` says what a dead letter tells. ``callbacks``: what users hand in to be called.

Begin with ``waiting``. ``client.jetstream.consuming.concurrent`` calls the handlers of a consumer,
``groups.member.handlers`` those of a group.
"""
