"""``python -m spark_runtime.sessions.daemon``: the process from which Spark forks Python workers.

It is PySpark's daemon, which has loaded what workers need before it forks the first one. A worker then needs
0.45 s of processor time until it has its first events, not 1.25, and 60 MB of its own, not 100: workers share
the modules. Spark ends a worker that had nothing to do for a minute, and forks another when it has work.

Compiled kernels are not loaded here: which ones are needed depends on the rules (`pipeline.workers`).
"""

from __future__ import annotations

import gc
from importlib import import_module

from pyspark.daemon import manager

MODULES = (
    "pandas",
    "pyarrow.compute",
    "cep.engine.warm",
    "cep.jit.loading",
    "spark_runtime.connectors.files.sink",
    "spark_runtime.connectors.files.source",
    "spark_runtime.dataflow.share_reader",
    "spark_runtime.operator.operator",
)
"""What all workers of pipelines load. They start no thread that a fork would lose."""


def main() -> None:
    """Load the modules, then fork workers as PySpark does."""
    for module in MODULES:
        import_module(module)
    gc.freeze()  # a collection in a worker would copy the pages that it shares
    manager()


if __name__ == "__main__":
    main()
