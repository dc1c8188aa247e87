"""What is seen of a run from outside: its runner's notes, its metrics, and who stands by.

``notes`` is the small file in which a runner says how its queries are, and whether the runner lives;
``standbys`` are those of runners that stand by. ``recorder`` hears what happens in a run and keeps the notes,
``meter`` serves the numbers, ``publishing`` tells a server; ``status`` reads it all, without Spark. Nobody
here leads a query: a run goes on where nothing of it can be noted.
"""
