"""Processes of Spark that a signal to the runner's whole group or control group does not end.

``systemctl stop``, the stop of a container and Ctrl-C in a terminal may reach every process beside the
runner. The runner alone is to act on them: it lets the batch end, then ends Spark. Java ends with its runner
whatever happens to that: its standard input, a pipe from the runner, ends then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark import SparkContext

DAEMON: Final = f"{__package__}.python_daemon"
"""What forks Spark's Python workers (``spark.python.daemon.module``)."""


def shielded_context(name: str, master: str, settings: Mapping[str, str]) -> SparkContext:
    """A context, that of this process if it has one; a Java that is started for it is shielded."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf().setMaster(master).setAppName(name).setAll(list(settings.items()))
    if SparkContext._gateway is not None:  # its Java runs already
        return SparkContext.getOrCreate(conf)
    # A session of its own keeps signals to the group away, also while Java starts.
    launch: Any = launch_gateway  # it has no types
    gateway = launch(conf, {"start_new_session": True})
    signals = gateway.jvm.sun.misc
    signals.Signal.handle(signals.Signal("TERM"), signals.SignalHandler.SIG_IGN)
    return SparkContext(conf=conf, gateway=gateway)
