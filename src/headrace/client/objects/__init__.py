"""Buckets of objects of any size, in the layout all NATS clients share: chunks, and a description of each.

``store`` is the bucket; ``writer`` puts content in chunks, ``reader`` brings it back and checks it.
``descriptions`` replaces what is said of an object without overwriting another change, ``info`` is what a
user sees of it, and its form on the wire. The room is handed an ``Api`` and a ``Stream``. Begin
with ``store``.
"""
