"""Putting batches on the disk: one thread, group commit, and undoing what did not fit.

It is handed work (bytes, paths, offsets) and says when that is durable; it knows neither messages nor
streams. Begin with ``commit``; ``writer`` has the order of writes and syncs that recovery relies on.
"""
