"""``headrace server …``, ``account``, ``errors``, ``events``: how a server does, what it tells of itself."""
