"""The blocking facade: the asyncio client on a background thread. Users import ``headrace.sync``.

Most of it is generated from the asyncio classes by ``make blocking``: a call is handed over to the loop's
thread, and its result is wrapped. By hand are written ``loop_thread`` (the thread, and how others use it;
begin reading there), ``messages`` (answers are queued from any thread), ``reading`` and ``sending`` (many
messages cross the threads at a time) and ``opening`` (the thread begins and ends with its connection).
"""
