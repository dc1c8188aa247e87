"""One stream: messages in, limits, removal, and waking those who wait for messages.

It is handed a configuration, a store and a ``Context``; of consumers and copies it knows ``ports.Reader`` and
``ports.Copier``. Begin with ``stream``, which is made of parts: ``publishes`` is the way in, of what
publishers send and of copies, ``removing`` the way out, with what says what has to go, ``expiry`` knows what
is too old, ``waiters`` which consumers a new message wakes.
"""
