"""Writes the blocking jobs client from the asyncio one. ``scripts/make-blocking`` is the command.

``plain`` writes it: the asyncio source without ``async``. ``words`` says what a docstring says otherwise; by
it tests compare the docstrings of ``headrace.sync``, too.
"""
