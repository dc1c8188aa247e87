"""Changing an elastic group while it works: partitions, key and filters.

``steps`` is the table, pure: record and work queue in, the next step out. ``change`` carries a step out and
reads both again. Begin reading at ``steps``.
"""
