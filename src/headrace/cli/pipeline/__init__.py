"""``headrace pipeline …``: declared pipelines of Spark queries."""

from __future__ import annotations

from ..shared.lazy import LazyGroup, Verb

pipeline = LazyGroup(
    "pipeline",
    {
        "new": Verb("write a first pipeline, with a test", "pipeline.new:new"),
        "validate": Verb(
            "look for mistakes, without Spark in less than a second", "pipeline.validate:validate"
        ),
        "graph": Verb("show how rows go: a tree, Mermaid, SVG", "pipeline.graph:graph"),
        "test": Verb(
            "give rows to sources and compare what comes, without a server",
            "pipeline.testing:run_tests",
        ),
        "run": Verb("run the queries until Ctrl-C", "pipeline.run:run"),
        "once": Verb("process what is there, then end", "pipeline.run:once"),
        "status": Verb("show how each query is, without Spark", "pipeline.status:status"),
        "explain": Verb(
            "show what each query reads: positions, subjects, markers", "pipeline.explain:explain"
        ),
        "reset": Verb("begin again at another place; nothing is destroyed", "pipeline.reset:reset"),
        "relocate": Verb(
            "take results that were moved where they lie now", "pipeline.relocate:relocate"
        ),
        "replay": Verb(
            "run a range through a query again, into results of its own", "pipeline.run:replay"
        ),
    },
    "Run Spark queries that a file declares: sources, views, expectations, sinks.",
)
