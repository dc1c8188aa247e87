"""What is known in memory of the messages on a disk: where they are, and of which subject.

Nothing is read or written here; a segment that is not loaded yet has a function that loads it. Begin with
``index`` (``Segment`` and ``SubjectTable``); ``views`` counts and finds what matches a filter.
"""
