"""Files: the one door to the operating system, and what is reported when it does not keep its word.

``files`` has the ``FileSystem`` protocol that the whole store works on, so tests hand in a disk of their
own. ``findings`` names damage and puts damaged bytes aside; ``lock`` keeps other processes out.
"""
