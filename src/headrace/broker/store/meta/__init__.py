"""Metadata: small values by key, in a journal, with a second copy beside each stream.

``meta`` is the owner's side, ``journal_writer`` the commit thread's, ``journal_file`` reads the journal
at the start. ``spare`` keeps the second copies and mends a damaged journal with them.
"""
