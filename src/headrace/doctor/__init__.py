"""What is wrong at a server, and the command that mends it: for ``headrace doctor`` and the console alike.

``findings`` says what a finding is; ``streams`` judges streams and consumers, ``groups`` asks for what keeps
messages from groups.
"""
