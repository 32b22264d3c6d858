from tests.spark.conftest import spark as spark
