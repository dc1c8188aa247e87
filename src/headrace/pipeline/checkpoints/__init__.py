"""What outlives a run: Spark's checkpoints, and what lies beside them.

``checkpoint`` says where a query's checkpoints lie, and reads what Spark wrote there; ``folders`` are small
files, here or wherever Spark reaches. Beside a checkpoint lie what the query was (``fingerprints``, from
``plan_text``), its sum (``totals``), its batch numbers (``numbers``) and the messages it leaves out
(``skipped``); in the folder of its results, whose they are (``bindings``), and Spark's list of its files
(``sink_log``).
"""
