"""The plans of micro-batches, in the checkpoint: each is written before anything of it is computed."""

from __future__ import annotations

from dataclasses import replace

from spark_runtime.pipeline.checkpoint import KEPT_BATCHES, Checkpoint, planned, write_plan
from spark_runtime.tables.static import StaticTables
from spark_runtime.wire.plan import Plan


class Plans:
    """The plans of one run.

    Parameters
    ----------
    checkpoint
        Where they lie.
    tables
        The static tables, of which each micro-batch has one content.
    done
        Number of the last micro-batch that is not repeated.
    """

    def __init__(self, checkpoint: Checkpoint, tables: StaticTables, done: int) -> None:
        self._checkpoint = checkpoint
        self._tables = tables
        self.last = planned(checkpoint, done) or Plan(())
        """The plan of the micro-batch that was begun last."""

    def repeated(self, batch: int) -> Plan | None:
        """Return the plan that an earlier run made for micro-batch `batch`, which begins now; None: none."""
        plan = planned(self._checkpoint, batch)
        self.last = plan or self.last
        return plan

    def written(self, batch: int, plan: Plan) -> Plan:
        """Return a new plan as micro-batch `batch` has it, which begins now: with its tables and identity."""
        plan = replace(plan, tables=self._tables.look()).following(self.last.identity)
        write_plan(self._checkpoint, batch, plan)
        self._tables.keep(batch, plan.tables, KEPT_BATCHES)
        self.last = plan
        return plan
