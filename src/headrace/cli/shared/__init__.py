"""What every command is made of: connection options, output, progress, questions, errors.

Begin with ``verbs``: ``@online`` makes a command of a coroutine function that is handed a ``Session``. Uses
click; rich and yaml are imported only where they are needed.
"""
