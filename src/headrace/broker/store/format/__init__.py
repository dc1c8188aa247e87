"""What the bytes on the disk mean: records, segment files, metadata entries, watermarks.

Pure: bytes in, values out, and back; no files. Begin with ``record``, the unit of everything that is
written, then ``segment``, the file that holds messages, and ``entries``, the metadata. ``removal_copy``
is the file beside a segment that says its removals again, ``version`` which formats this program reads.
"""
