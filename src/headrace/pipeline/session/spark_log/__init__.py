"""``spark.log``: everything that Spark, its workers and users' code print during a run.

``entries`` makes entries of lines, gives those a time that have none, and counts what repeats; ``pump`` takes
what is printed from a pipe and keeps the file small. ``log4j2.properties`` is how Java writes: time, level,
and the query or thread.
"""
