"""Jobs over HTTP: messages are broadcast to channels, and every consumer of a channel gets a job.

The service calls a *push* consumer at its URL; a *pull* consumer fetches its jobs at its own rate. The
modules and rooms, from pure to impure: ``states``, ``policy``, ``access``, ``schedules`` and ``matching``
decide, ``store`` stores (SQLite or PostgreSQL), ``service`` implements the operations, ``runtime`` is
what a process has, ``config`` what it is told, ``seeds`` what that defines. ``streams`` reads streams,
``push`` calls endpoints, ``maintenance`` is done in the background, ``http`` serves clients, ``server``
starts and ends it all. ``client`` is one.
"""
