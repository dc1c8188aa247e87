"""Routes of the pages, by noun. Each module has ``ROUTES``: method, path, handler.

A handler gets the sources and the request, and returns a document. What it raises becomes an answer,
see ``answers.route``.
"""
