"""The plans of micro-batches, in the checkpoint: each is written before its micro-batch is computed."""

from __future__ import annotations

from dataclasses import replace

from spark_runtime.pipeline.checkpoint import KEPT_BATCHES, Checkpoint, planned, write_plan
from spark_runtime.tables.static import StaticTables
from spark_runtime.wire.plan import Plan


class Plans:
    """The plans of one run.

    `tables`: the static tables; each micro-batch uses one version of the contents of each. `done`: number of
    the last micro-batch that will not be repeated.
    """

    def __init__(self, checkpoint: Checkpoint, tables: StaticTables, done: int) -> None:
        self._checkpoint = checkpoint
        self._tables = tables
        self.last = planned(checkpoint, done) or Plan(())
        """The plan of the micro-batch that was begun last."""

    def repeated(self, batch: int) -> Plan | None:
        """Return an earlier run's plan for micro-batch `batch`, which starts now, or None."""
        plan = planned(self._checkpoint, batch)
        if plan is not None:
            self._tables.keep(batch, plan.tables, KEPT_BATCHES)
            self.last = plan
        return plan

    def written(self, batch: int, plan: Plan) -> Plan:
        """Store a new plan for micro-batch `batch`, which starts now; return it with tables and identity."""
        plan = replace(plan, tables=self._tables.look()).following(self.last.identity)
        write_plan(self._checkpoint, batch, plan)
        self._tables.keep(batch, plan.tables, KEPT_BATCHES)
        self.last = plan
        return plan
