"""The first draft of a pipeline: ``draft`` makes its text (pure), ``look`` asks what a stream holds."""
