"""``headrace store …``: the broker's own store, while no broker runs on it."""
