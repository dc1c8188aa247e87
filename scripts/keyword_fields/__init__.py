"""Types for keyword arguments, written from the fields of configurations, with their descriptions.

``create_stream(**values: Unpack[StreamFields])`` takes what a ``StreamConfig`` has, in wider types: a
duration may be a timedelta, a time a datetime. Type checkers and editors can follow no computed type, so
``scripts/make-keywords`` writes one down, and a test says when it is stale.
"""
