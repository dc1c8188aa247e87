"""Jobs over HTTP: messages are broadcast to channels, and every consumer of a channel gets a job.

The service calls a *push* consumer at its URL; a *pull* consumer fetches its jobs at its own rate. The
packages, from pure to impure: ``states`` and ``policy`` decide, ``store`` stores (SQLite or PostgreSQL),
``service`` implements the operations, ``push`` calls endpoints, ``http`` serves clients, ``client`` is one.
"""
