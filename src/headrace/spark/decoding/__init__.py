"""Payloads as columns: what the value of a message is, decoded in the reader.

``columns`` says what the columns are, ``misfits`` what becomes of a value that does not fit. A format
(``jsons``, ``arrows``, ``texts``, ``avros``, ``protobufs``) decodes a chunk of payloads; ``schemas`` fetches
the schemas of writers from a bucket.
"""
