"""``headrace object …``."""
