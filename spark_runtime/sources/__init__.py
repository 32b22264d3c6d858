"""Where the events of a pipeline come from.

A source that we read ourselves is planned on the driver (`protocol.Planner`) and read in the workers
(`share_reader`). The plan of each micro-batch stands in the checkpoint and names the streams, so that neither
the order nor the number of sources in the pipeline file matters. What only Spark can read is a source of
Spark's own (`by_spark`).
"""
