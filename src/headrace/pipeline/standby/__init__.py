"""What a runner does while it stands by, so that it can take over at once.

``rehearsal`` runs each query's plan over no rows, by the source and the sink of ``dry``; ``readiness`` does
so on a thread, again and again, and says whether it went well, which is a ``state``; ``in_turn``
lets one runner of a machine start at a time. Nothing outside is changed: what is read only is read.
"""
