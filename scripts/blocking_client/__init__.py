"""Writes the blocking clients from the asyncio ones. ``scripts/make-blocking`` is the command.

``facade`` writes ``headrace.client.blocking``: each class hands its calls over to the asyncio object on
the loop's thread. ``plain`` writes the blocking client of the job service, which needs no loop: it is the
asyncio source without ``async``. Of ``headrace.groups.blocking`` writes ``verbs`` the functions, ``once`` the
module ``exactly_once``, and ``words_of_groups`` the docstrings of what is written by hand there. ``table``
says what is special about a class, ``words`` what a docstring says otherwise. Begin with ``table``.
"""
