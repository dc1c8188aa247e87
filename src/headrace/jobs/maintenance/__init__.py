"""What is done in the background: leases end, schedules fire, counts are folded, old messages go.

``maintenance`` decides which process does what, and when; ``archive`` writes down what is to be removed.
What becomes of a job is decided in ``service``.
"""
