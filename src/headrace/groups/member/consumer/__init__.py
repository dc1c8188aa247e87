"""One consumer of a member: made, read, let go of, whatever becomes of it meanwhile.

``machine`` decides what is next, event by event, and is pure; ``member_consumer`` carries it out;
``consuming`` is the time between the first pull and the loss of the pin. Begin reading at ``machine``.
"""
