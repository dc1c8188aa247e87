"""How messages come from a consumer: one pull request and what it brings (``fetch``), or what the server
pushes (``push``).

``pull`` is the arithmetic of pulls, without I/O: how many messages to ask for, and what an answer means.
``pin`` keeps the pin of a priority group, ``waiter`` is what a reader awaits. Begin with ``pull``.
"""
