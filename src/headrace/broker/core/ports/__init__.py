"""What the core is handed, as protocols without behaviour.

``storage`` is durability (``broker.store`` matches it by shape), ``bus`` the router as JetStream sees it, the
question whether somebody listens, timers and randomness. Begin with ``Bus`` and ``Storage``.
"""
