"""Problems of a pipeline before it runs: by its options, by servers, by what is left of earlier runs.

No Spark is needed. ``options`` has the checks that ask nobody, ``servers`` asks for streams and rights; what
both look at is a ``Use`` (``uses``). ``formats`` knows files. ``explaining`` says what each query reads,
``backlog`` how much of it waits, ``replay_edges`` what a replay of a range lacks, ``order`` what joins do to
the order of rows. ``refusals`` says whether a query may go on from its checkpoint: with its results, its
durables and sums (``again``); ``gaps`` whether all that it would read next is still there (``failed_batch``:
what its last batch had).
"""
