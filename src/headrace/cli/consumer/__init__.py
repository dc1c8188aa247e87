"""``headrace consumer …``."""
