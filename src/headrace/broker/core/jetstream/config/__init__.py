"""What a configuration may say: defaults, checks and what an update may change.

Pure, and below all else: it is handed configurations of streams and consumers and gives them back
completed, or raises ``Refused`` with the public server's text and number. Begin with ``stream`` and
``consumer``; the others hold the rules of one subject each: ``sources``, ``sizes``, and what an operator may
choose (``options``).
"""
