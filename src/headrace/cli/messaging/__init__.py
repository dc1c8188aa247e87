"""``headrace pub``, ``sub``, ``request`` and ``reply``, and messages taken from a consumer."""
