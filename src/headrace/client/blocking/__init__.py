"""The blocking facade: the asyncio client on a background thread. Users import ``headrace.sync``.

A method hands its call over to the loop's thread, and wraps the result; ``headrace.blocking`` makes it of
the asyncio one, with its signature and documentation. Begin reading there, and in ``loop_thread``: the
thread, and how others use it. Answers are queued from any thread (``messages``). Where messages are taken
or sent, many cross the threads at a time (``consumer``, ``subscription``, ``publisher``).
"""
