"""How a range of a stream is divided into tasks, and where it begins and ends.

``slices`` (pure) says how far a batch reaches and splits it; ``lag_counts`` (pure) what of a stream counts as
messages. ``positions`` asks the server where a time lies, ``open_ends`` where ``earliest`` and ``latest``
are.
"""
