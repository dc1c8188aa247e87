"""What is seen of a run from outside: its runner's notes, and its metrics.

``notes`` is the small file in which a runner says how its queries are, and whether the runner lives;
``recorder`` hears what happens in a run and keeps that file, ``meter`` serves the numbers. Nobody here leads
a query: a run goes on where nothing of it can be noted.
"""
