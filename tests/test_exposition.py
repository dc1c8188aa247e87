"""Prometheus' text format: what stands before samples, and labels whatever they contain."""

from __future__ import annotations

from headrace.exposition import Metric, described, label_text


def test_a_metric_is_described_before_its_samples() -> None:
    metric = Metric("lag", "gauge", "What waits.")
    assert described(*metric) == ["# HELP lag What waits.", "# TYPE lag gauge"]


def test_labels_are_escaped() -> None:
    assert label_text((("a", 'x"\\\n'), ("b", "<y>"))) == '{a="x\\"\\\\\\n",b="<y>"}'
    assert label_text(()) == ""
