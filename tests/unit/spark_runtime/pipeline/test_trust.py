"""How far a pipeline file is trusted: settings of Spark, and roots of paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from cep.errors import InputError, RuleError
from cep.settings.roots import is_inside, root_of
from spark_runtime.pipeline.made import Pipeline
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.pipeline.trust import WHOLE, Trust, is_listed

RULE = "RULE r FROM readings PARTITION BY k PATTERN a -> b WITHIN 1 MINUTE DEFINE a AS v > 1, b AS v < 0"


def pipeline(folder: Path, trust: Trust, **settings: str) -> Pipeline:
    folder.mkdir(exist_ok=True)
    (folder / "r.cep").write_text(RULE)
    usual = {
        "streams": "{readings: {event_time: ts, schema: {k: string, ts: timestamp, v: double}}}",
        "rules": "[r.cep]",
        "source": "{stream: readings, format: json, path: events}",
        "sinks": "[{format: parquet, path: out}]",
        "checkpoint": "state",
    }
    lines = [f"{name}: {value}" for name, value in {**usual, **settings}.items()]
    (folder / "p.yaml").write_text("\n".join(lines))
    return load_pipeline(folder / "p.yaml", trust)


def test_a_text_is_one_root_or_one_rule_and_not_its_characters(tmp_path: Path) -> None:
    assert Trust.of("/tmp", any_spark_setting=False) == Trust.of(["/tmp"], any_spark_setting=False)
    with pytest.raises(InputError, match=r"E0827.*roots is None"):
        Trust.of(None, any_spark_setting=False)  # type: ignore[arg-type]
    pipeline(tmp_path / "p", WHOLE)
    assert load_pipeline(tmp_path / "p" / "p.yaml", shadow="r").rules.shadow == {"r"}


# ------------------------------------------------------------ settings of Spark

ORDINARY = {
    "spark.master": "local[4]",
    "spark.app.name": "x",
    "spark.driver.memory": "4g",
    "spark.driver.host": "10.0.0.1",
    "spark.executor.memory": "2g",
    "spark.executor.cores": "4",
    "spark.executor.instances": "3",
    "spark.executor.memoryOverhead": "1g",
    "spark.cores.max": "8",
    "spark.default.parallelism": "8",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.maxExecutors": "9",
    "spark.memory.fraction": "0.7",
    "spark.network.timeout": "300s",
    "spark.task.maxFailures": "8",
    "spark.local.dir": "/scratch",
    "spark.authenticate": "true",
    "spark.yarn.queue": "q",
    "spark.ui.enabled": "true",
    "spark.ui.retainedJobs": "1000",
    "spark.sql.ui.retainedExecutions": "1000",
    "spark.sql.shuffle.partitions": "16",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "512",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.streaming.stateStore.compression.codec": "zstd",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:9000",
    "spark.hadoop.fs.s3a.endpoint.region": "eu-central-1",
    "spark.hadoop.fs.s3a.access.key": "a",
    "spark.hadoop.fs.s3a.secret.key": "b",
    "spark.hadoop.fs.s3a.path.style.access": "true",
    "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    "spark.hadoop.fs.s3a.bucket.my-lake.endpoint": "https://s3.example.com",
    "spark.hadoop.fs.s3a.performance.flags": "create",
    "spark.hadoop.fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net": "k",
    "spark.hadoop.fs.gs.project.id": "p",
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.io.compression.codec": "zstd",
}

DANGEROUS = {
    "spark.jars": "x.jar",
    "spark.jars.packages": "a:b:1",
    "spark.jars.repositories": "https://example.com",
    "spark.jars.ivySettings": "ivy.xml",
    "spark.files": "x",
    "spark.archives": "x",
    "spark.submit.pyFiles": "x.py",
    "spark.plugins": "a.B",
    "spark.extraListeners": "a.B",
    "spark.sql.extensions": "a.B",
    "spark.sql.queryExecutionListeners": "a.B",
    "spark.sql.streaming.streamingQueryListeners": "a.B",
    "spark.sql.catalog.lake": "a.B",
    "spark.sql.warehouse.dir": "/",
    "spark.sql.parquet.output.committer.class": "a.B",
    "spark.sql.streaming.stateStore.providerClass": "a.B",
    "spark.sql.streaming.checkpointFileManagerClass": "a.B",
    "spark.driver.extraJavaOptions": "-javaagent:x.jar",
    "spark.driver.defaultJavaOptions": "-javaagent:x.jar",
    "spark.driver.extraClassPath": "/tmp",
    "spark.driver.extraLibraryPath": "/tmp",
    "spark.executor.extraJavaOptions": "-javaagent:x.jar",
    "spark.executor.extraClassPath": "/tmp",
    "spark.executorEnv.LD_PRELOAD": "/tmp/x.so",
    "spark.executorEnv.PYTHONPATH": "/tmp",
    "spark.yarn.appMasterEnv.PYTHONPATH": "/tmp",
    "spark.yarn.dist.archives": "x",
    "spark.kubernetes.container.image": "evil",
    "spark.pyspark.python": "/tmp/python",
    "spark.pyspark.driver.python": "/tmp/python",
    "spark.python.daemon.module": "evil",
    "spark.python.worker.module": "evil",
    "spark.r.command": "evil",
    "spark.shuffle.manager": "a.B",
    "spark.shuffle.sort.io.plugin.class": "a.B",
    "spark.serializer": "a.B",
    "spark.kryo.registrator": "a.B",
    "spark.io.compression.codec": "a.B",
    "spark.sql.streaming.stateStore.compression.codec": "a.B",
    "spark.ui.filters": "a.B",
    "spark.metrics.conf": "/tmp/x",
    "spark.metrics.conf.*.sink.x.class": "a.B",
    "spark.eventLog.dir": "/tmp",
    "spark.driver.resource.gpu.discoveryScript": "/tmp/x.sh",
    "spark.hadoop.fs.s3a.impl": "a.B",
    "spark.hadoop.fs.evil.impl": "a.B",
    "spark.hadoop.fs.s3a.bucket.x.impl": "a.B",
    "spark.hadoop.fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.A,a.B",
    "spark.hadoop.fs.s3a.custom.signers": "x:a.B",
    "spark.hadoop.fs.s3a.buffer.dir": "/etc",
    "spark.hadoop.fs.s3a.committer.staging.tmp.path": "/etc",
    "spark.hadoop.hadoop.security.group.mapping": "a.B",
    "spark.hadoop.fs.permissions.umask-mode": "000",
    "spark.hadoop.fs.azure.account.oauth.provider.type": "a.B",
    "spark.locality.wait\n": "1",
    "spark.network.crypto.config.cipher.classes": "a.B",
    "spark.unknown": "x",
    "SPARK.JARS": "x",
}


@pytest.mark.parametrize("name", ORDINARY)
def test_settings_that_an_ordinary_pipeline_needs_are_listed(name: str) -> None:
    assert is_listed(name, ORDINARY[name])


@pytest.mark.parametrize("name", DANGEROUS)
def test_settings_that_name_code_an_environment_or_a_file_are_not(name: str) -> None:
    assert not is_listed(name, DANGEROUS[name])


def test_a_setting_that_is_not_listed_is_refused_at_its_place(tmp_path: Path) -> None:
    with pytest.raises(RuleError) as caught:
        pipeline(tmp_path, Trust(), spark="{spark.driver.memory: 2g, spark.plugins: a.B}")
    assert str(caught.value) == (
        "error[E0838]: a pipeline file may not set `spark.plugins`\n"
        f"  --> {tmp_path}/p.yaml:6:49\n"
        "   |\n"
        " 6 | spark: {spark.driver.memory: 2g, spark.plugins: a.B}\n"
        f"   |{' ' * 49}^^^ it can run code, or nobody has checked that it cannot\n"
        "   |\n"
        "help: if you trust the file, run it with --allow-spark-settings"
    )


def test_a_file_that_is_trusted_may_set_everything(tmp_path: Path) -> None:
    for trust in (WHOLE, Trust(any_spark_setting=True)):
        assert pipeline(tmp_path, trust, spark="{spark.plugins: a.B}").spark == (("spark.plugins", "a.B"),)


# ------------------------------------------------------------ roots


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/data/in", "/data"),
        ("/data", "/data"),
        ("/data/in/{day}/*.csv", "/data"),
        ("/data/x/../in", "/data"),
        ("file:///data/in", "/data"),
        ("/data/in", "file:///data/"),
        ("/anything", "/"),
        ("s3a://lake/in", "s3a://lake"),
        ("s3a://lake/in/x", "s3a://lake/in/"),
        ("S3A://lake/in", "s3a://lake"),
    ],
)
def test_a_path_below_a_root_is_inside(path: str, root: str) -> None:
    assert is_inside(path, [root_of("/other"), root_of(root)])


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/database", "/data"),
        ("/data/../etc", "/data"),
        ("file:///etc/passwd", "/data"),
        ("file:///data/../etc", "/data"),
        ("FILE:///etc", "/data"),
        ("s3a://lake/in", "/"),
        ("s3a://lake2/in", "s3a://lake"),
        ("s3a://lake/in/../out", "s3a://lake/in"),
        ("s3a://lake/inside", "s3a://lake/in"),
        ("hdfs://lake/in", "s3a://lake"),
        ("/data", "s3a://data"),
    ],
)
def test_a_path_elsewhere_is_not(path: str, root: str) -> None:
    assert not is_inside(path, [root_of(root)])


def test_a_link_out_of_a_root_is_outside(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/link").symlink_to("/etc")
    assert not is_inside(str(tmp_path / "root/link/passwd"), [root_of(str(tmp_path / "root"))])
    (tmp_path / "other").symlink_to(tmp_path / "root")
    assert is_inside(str(tmp_path / "root/x"), [root_of(str(tmp_path / "other"))])


def test_without_roots_a_pipeline_may_name_any_place(tmp_path: Path) -> None:
    assert pipeline(tmp_path, Trust(), checkpoint="/elsewhere").checkpoint == "/elsewhere"


OUTSIDE = {
    "source": "{stream: readings, format: json, path: /etc}",
    "sinks": "[{format: parquet, path: /elsewhere}]",
    "late": "{format: json, path: ../late}",
    "dead_letter": "{format: json, path: s3a://lake/dead}",
    "checkpoint": "../../state",
    "rules": "[/etc/passwd]",
    "streams": "../streams.yaml",
    "spark": "{spark.local.dir: /scratch}",
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_each_path_of_a_pipeline_must_be_below_a_root(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "project"
    trust = Trust.of([str(folder)], any_spark_setting=False)
    pipeline(folder, trust, late="{format: json, path: late}")
    with pytest.raises(RuleError) as caught:
        pipeline(folder, trust, **{name: OUTSIDE[name]})
    [problem] = [each for each in caught.value.diagnostics if each.code == "E0839"]
    assert problem.title == "a path outside of the declared roots"
    assert problem.label == f"not below {folder}"
    assert problem.span is not None


NUL = {
    "source": r'{stream: readings, format: json, path: "in\0.jsonl"}',
    "sinks": r'[{format: parquet, path: "s3a://lake/o\0"}]',
    "late": r'{format: webhook, url: "http://h/", refused: "r\0"}',
    "dead_letter": r'{format: webhook, url: "http://h/", headers: {A: "b\0"}}',
    "checkpoint": r'"state\0"',
    "rules": r'["r\0.cep"]',
    "streams": r'"streams\0.yaml"',
    "lineage": r'"l\0.json"',
    "log": r'{path: "log\0"}',
}


@pytest.mark.parametrize("name", NUL)
@pytest.mark.parametrize("has_roots", [False, True])
def test_a_path_with_a_nul_is_refused_at_its_place(tmp_path: Path, name: str, has_roots: bool) -> None:
    trust = Trust.of([str(tmp_path)], any_spark_setting=True) if has_roots else Trust()
    with pytest.raises(RuleError) as caught:
        pipeline(tmp_path, trust, **{name: NUL[name]})
    problem = caught.value.diagnostics[0]
    assert problem.code == "E0402"
    assert problem.span is not None


@pytest.mark.parametrize(
    "source",
    [
        r'format: kafka, brokers: "b\0", topic: t',
        r'format: kafka, brokers: b, topic: "t\0"',
        r'format: kafka, brokers: b, topic: t, options: {ssl.ca.location: "a\0"}',
        r'format: kafka, brokers: b, topic: t, value: {format: avro, schema: "a\0"}',
        r'format: postgres, host: "h\0", database: d, table: t',
        r'format: nats, servers: s, stream_name: s, options: {tls_ca: "a\0"}',
    ],
)
def test_a_nul_in_a_setting_of_a_library_is_refused(tmp_path: Path, source: str) -> None:
    with pytest.raises(RuleError) as caught:
        pipeline(tmp_path, Trust(), source=f"{{stream: readings, {source}}}")
    assert "a value contains a NUL character" in [each.title for each in caught.value.diagnostics]


def test_the_schema_of_messages_and_the_folder_of_refused_rows_are_paths_too(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    trust = Trust.of([str(folder)], any_spark_setting=False)
    value = "{format: avro, schema: /etc/schema.avsc}"
    for settings in (
        {"source": f"{{stream: readings, format: kafka, brokers: b, topic: t, value: {value}}}"},
        {"sinks": "[{format: webhook, url: 'https://h/', refused: /refused}]"},
    ):
        with pytest.raises(RuleError, match="E0839"):
            pipeline(folder, trust, **settings)


@pytest.mark.parametrize("option", ["plugin.library.paths", "sasl.kerberos.kinit.cmd", "ssl.engine.location"])
def test_options_of_a_client_that_run_code_are_refused(tmp_path: Path, option: str) -> None:
    source = f"{{stream: readings, format: kafka, brokers: b, topic: t, options: {{{option}: x}}}}"
    with pytest.raises(RuleError, match=f"E0843.*`{option}` is not for `options`"):
        pipeline(tmp_path, WHOLE, source=source)
