"""State of one process of the service, shared by all that runs in it.

``runtime`` is handed to whoever serves, pushes or maintains: the database, the clock, the metrics, and what
else is here. ``lookout`` wakes those who wait for jobs, ``keyring`` knows the API keys seen lately,
``counting`` says what counts where, ``parts`` try again what failed, and tell whether this process can do its
work. Begin with ``runtime``.
"""
