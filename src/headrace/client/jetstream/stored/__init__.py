"""Messages as a stream has them, read without a consumer: one (``stored_message``), many at once
(``direct_get``), and the whole stream with its consumers in a directory (``backup``).
"""
