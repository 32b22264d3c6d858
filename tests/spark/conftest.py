from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/spark/" in item.path.as_posix():
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    from spark_runtime import session

    conf = {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "2",
        # By default state stores are looked after every minute, longer than any test takes.
        "spark.sql.streaming.stateStore.maintenanceInterval": "300ms",
    }
    running = session(conf, name="tests", is_short=True)
    yield running
    running.stop()
