"""Run the broker until it is stopped.

SIGINT and SIGTERM stop it cleanly (a second one forces), SIGUSR2 announces the stop to the clients first,
SIGHUP reloads the configuration file, SIGUSR1 reopens the log file.
"""

from __future__ import annotations

from .command import add_arguments, run, spell

__all__ = ["add_arguments", "run", "spell"]
