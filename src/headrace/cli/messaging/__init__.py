"""``headrace pub``, ``sub``, ``request`` and ``reply``."""
