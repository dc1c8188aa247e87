"""How many members a group should have, decided from looks at it. Pure.

It is handed what ``watching.progress`` counted, and the time. Begin reading at ``autoscaler``; ``policy`` has
the bounds, ``situation`` the numbers of one look, ``experience`` what members were seen to handle.
"""
