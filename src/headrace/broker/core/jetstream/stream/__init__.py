"""One stream: messages in, limits, removal, and waking those who wait for messages.

It is handed a configuration, a store and a ``Context``; of consumers and copies it knows ``ports.Reader`` and
``ports.Copier``. Begin with ``stream``, which is made of parts: ``listening`` says which subjects it hears,
``publishes`` hears publishers and answers, ``staging`` is the one way into the store, ``removing`` the way
out; ``subject_limit``, ``expiry`` and ``retention`` say what has to go, ``copy_target`` takes in what other
streams hold, ``waiters`` knows which consumers a new message wakes.
"""
