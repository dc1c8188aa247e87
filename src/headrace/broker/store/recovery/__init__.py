"""Opening a stream: from the files in its directory to a log that goes on where it ended.

It decides which records count: it tells torn writes, that nobody was told about, from damage, and reports
what is lost. Begin with ``recovery.open_log``.
"""
