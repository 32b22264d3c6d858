"""Rules and events that nobody chose: Spark reports what the oracle reports.

`python -m tests.property --spark 200` tries more.
"""

from pyspark.sql import SparkSession

from tests.property.on_spark import compare_on_spark, compare_tables_on_spark


def test_a_batch_of_drawn_rules_gives_the_matches_of_the_oracle(spark: SparkSession) -> None:
    tally = compare_on_spark(spark, n=8, first_seed=11)
    assert tally["with matches"] >= 3


def test_a_batch_of_drawn_rules_with_tables_gives_the_matches_of_the_oracle(spark: SparkSession) -> None:
    tally = compare_tables_on_spark(spark, n=6, first_seed=7)
    assert tally["with tables and matches"] >= 3
