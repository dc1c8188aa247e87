"""What is due when: message schedules, and the times at which messages expire.

``schedules`` makes a stream publish to itself; it is handed a ``ScheduleTarget``. ``patterns`` say
when a schedule fires next, and are pure; ``due_times`` reminds of sequences by time.
"""
