"""Key groups land on the partitions they are meant for."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_runtime.wire.key_groups import labels, spark_hash


def test_our_hash_of_an_integer_is_sparks(spark: SparkSession) -> None:
    values = [0, 1, 2, 3, 17, 1000, 2**31 - 1]
    frame = spark.createDataFrame([(value,) for value in values], "v int")
    assert [row[0] for row in frame.select(F.hash("v")).collect()] == [spark_hash(value) for value in values]


@pytest.mark.parametrize(("n_groups", "n_partitions"), [(1, 1), (2, 2), (7, 7), (64, 64), (8, 4), (6, 4)])
def test_groups_spread_evenly_over_the_partitions(n_groups: int, n_partitions: int) -> None:
    found = labels(n_groups, n_partitions)
    assert len(set(found)) == n_groups
    assert [spark_hash(label) % n_partitions for label in found] == [
        g % n_partitions for g in range(n_groups)
    ]


def test_spark_sends_each_group_to_a_partition_of_its_own(spark: SparkSession) -> None:
    group_labels = labels(5, 5)
    choices = F.array(*map(F.lit, group_labels))
    frame = spark.range(2000).select(F.element_at(choices, (F.col("id") % 5 + 1).cast("int")).alias("g"))
    placed = frame.repartition(5, "g").select("g", F.spark_partition_id().alias("p")).distinct().collect()
    assert sorted(row.g for row in placed) == sorted(group_labels)
    assert len({row.p for row in placed}) == 5
