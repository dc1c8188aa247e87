"""``headrace pipeline …``: declared pipelines of Spark queries."""
