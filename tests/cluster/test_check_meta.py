"""``headrace server check meta`` at three real servers: each of them, whoever leads."""

from __future__ import annotations

import subprocess
import sys

from nats_cluster import Cluster


def test_each_server_of_a_whole_cluster_is_well_and_only_the_leader_judges_the_others(
    cluster: Cluster,
) -> None:
    told = []
    for node in cluster.nodes:
        command = ["server", "check", "meta", "--expect", "3", "--monitor", node.monitoring_url]
        done = subprocess.run(
            [sys.executable, "-m", "headrace", "-s", node.server.url, *command],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.startswith("OK meta: 3 servers, led by ")
        told.append("ask there" in done.stdout)
    assert sorted(told) == [False, True, True]
