"""Files: the one door to the operating system, and what is reported when it does not keep its word.

``files`` has the ``FileSystem`` protocol that the whole store works on, so tests hand in a disk of their
own, and the lock that keeps other processes out. ``findings`` names damage and puts damaged bytes aside;
``syncing`` has many files synced at the same time.
"""
