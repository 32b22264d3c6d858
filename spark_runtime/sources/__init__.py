"""The sources of a pipeline's events.

A source that we read ourselves is planned on the driver (`protocol.Planner`) and read in the workers
(`share_reader`). The plan of each micro-batch is in the checkpoint and names the streams, so neither the
order nor the number of sources in the pipeline file matters. Input that only Spark can read is a source of
Spark's own (`by_spark`).
"""
