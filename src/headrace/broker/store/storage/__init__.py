"""The store as its owner sees it: streams by name, flushes, metadata, the directory.

``storage`` puts the other rooms together and keeps the order of flushes; ``memory`` is the store without a
disk. ``layout`` knows the directories, ``scrub`` reads sealed files again to find rot.
"""
