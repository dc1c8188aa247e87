"""``headrace stream …``."""
