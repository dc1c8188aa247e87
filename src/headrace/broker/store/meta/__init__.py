"""Metadata: small values by key, in a journal, with a second copy beside each stream.

``meta`` is the owner's side, ``journal`` reads the file at the start and writes it on the commit thread.
``spare`` keeps the second copies and mends a damaged journal with them.
"""
