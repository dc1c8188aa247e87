"""The request-reply API on ``$JS.API.>``: requests are read, checked against the rules, and answered.

It is handed an account's streams (``Assets``) and a ``Context``. An answer to what changes something
waits for the disk. Begin with ``dispatcher``, which finds the endpoint; the others have the endpoints of
one kind each.
"""
