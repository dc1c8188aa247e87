"""Consumers: what each still has to deliver, to whom and when, and what became of its deliveries.

A ``Consumer`` is handed its context and a view of its stream, and is made, journaled and closed by the
engine. Begin with ``consumer``, which puts the parts together, and ``delivery_pass``, in which messages
meet recipients. ``delivery_state`` and ``journal`` are pure: deliveries, floors, redeliveries, and how they
are kept. ``backlog`` counts and reads what is left, ``timer`` says when time matters. The requests of a pull
consumer arrive in ``pulls``, wait in ``pull_queue``, and are served as ``pull_recipients``; ``push`` has what
only a push consumer has. The parts know the consumer they belong to by ``view``.
"""
