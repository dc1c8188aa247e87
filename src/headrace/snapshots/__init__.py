"""What a backup of a stream is made of, byte by byte, sans-I/O: both ends and the command line use it.

A backup is a sequence of frames (``framing``). In them is either of two containers: an archive of entries
(``archive``), which nats-server writes from 2.15 on and we write, or a tar of the files of its store
(``tar``, ``store_files``, ``records``, ``consumer_state``), as it did before. ``Unpacker`` reads either
and says what it holds; ``packing`` writes either. Begin with ``contents``, the words of both.
"""
