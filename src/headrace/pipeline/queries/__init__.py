"""A sink's query in Spark: its rows as a DataFrame (``frames``), and how they are written.

``conditions`` are expectations in SQL (pure), ``handlers`` sinks that are functions, ``numbered`` sinks of
streams in the output modes that Spark does not give them.
"""
