"""Jobs over HTTP: messages are broadcast to channels, every consumer of a channel gets a job.

A *push* consumer is called at its URL; a *pull* consumer asks for its jobs, at its own rate. The rooms,
from pure to impure: ``states`` and ``policy`` decide, ``store`` keeps (SQLite or PostgreSQL), ``service``
says what an operation is, ``push`` calls endpoints, ``http`` speaks to clients, ``client`` is one.
"""
