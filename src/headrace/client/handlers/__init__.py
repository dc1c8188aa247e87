"""What handlers of messages are made of, for consumers and for groups: which message may be begun next
(``lanes``), where plain functions run (``threads``), and what follows when one fails (``failure``).

Begin with ``lanes``. Who calls the handlers of a consumer is ``jetstream.abreast``; those of a group,
``groups.member``.
"""
