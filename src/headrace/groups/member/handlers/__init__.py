"""Calling the handler: in the order of each key, on the loop or on threads, and what follows when it fails.

``on_loop`` calls coroutine functions, ``on_threads`` plain ones; ``iteration`` stands in for a handler where
there is none. Begin reading at ``on_loop``.
"""
