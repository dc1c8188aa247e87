"""``headrace kv …``."""
