"""Findings of what stands still, or will: one judgement, of documents that any server tells. Pure.

``finding`` has the kinds of findings and what one is; ``streams``, ``consumers``, ``pipelines``, ``account``
and ``jobs`` judge one of these each (``headrace.doctor`` judges groups). Whoever shows findings (doctor,
console, ``server check``, the broker's metrics) takes a look in its own way and asks here.
"""
