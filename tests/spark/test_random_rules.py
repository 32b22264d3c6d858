"""Rules and events that nobody chose: Spark reports what the oracle reports, with the ids of a local run.

`python -m tests.property --spark 200` tries more.
"""

import pytest
from pyspark.sql import SparkSession

from tests.deep import n_cases
from tests.property.on_spark import compare_on_spark


@pytest.mark.parametrize(
    ("kind", "n"), [("rules", 8), ("tables", 6), ("chains", 3), ("silent windows", 2), ("views", 2)]
)
def test_a_batch_of_drawn_rules_gives_the_matches_of_the_oracle(
    spark: SparkSession, kind: str, n: int
) -> None:
    n = n_cases(n)
    tally = compare_on_spark(spark, n, first_seed=7, only=kind)
    assert tally["with matches"] >= min(n // 2, 3)
