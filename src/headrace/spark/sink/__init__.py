"""Writing: ``df.write`` and ``df.writeStream`` with ``format("jetstream")``.

``writer`` has the classes that Spark calls, ``options`` what a user may say. A task (``writing``) makes rows
of Arrow batches (``rows``, with ``template`` and ``values``) and hands them to one of two publishers:
``window`` keeps many unacknowledged at once; ``fenced`` stores each row exactly once, by ``markers`` and a
``tally``, which are pure; ``keyed`` stores the last row of each key (``last_of_key``) by comparing its
``versions`` with what is there (``stored_values``). ``target`` knows the stream and what it must allow;
``dead_letters`` takes rows that make no message.
"""
