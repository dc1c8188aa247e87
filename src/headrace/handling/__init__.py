"""What handlers of messages are made of, for consumers and for groups: which message may be begun next
(``key_order``), where plain functions run (``threads``), and what follows when one fails (``failure``,
``dead_letter_headers``).

Begin with ``key_order``. ``jetstream.consuming.concurrent`` calls the handlers of a consumer,
``groups.member`` those of a group.
"""
