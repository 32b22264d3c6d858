"""How far a pipeline file is trusted: the places that it may name, and Spark's settings that it may set."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from cep.arguments import several_texts
from cep.settings.roots import root_of
from cep.settings.settings import check_place
from cep.settings.yaml_document import Document


@dataclass(frozen=True, slots=True)
class Trust:
    """How far a pipeline file is trusted.

    `roots`: folders, or addresses of folders in other file systems, in which all its paths must be; empty:
    any. `any_spark_setting`: whether it may set settings of Spark that can run code.
    """

    roots: tuple[str, ...] = ()
    any_spark_setting: bool = False

    @classmethod
    def of(cls, roots: str | Sequence[str], *, any_spark_setting: bool) -> Trust:
        """Return the trust with these roots, given as a user writes them.

        Raises InputError: they are not texts (E0827). Without roots every path would be allowed.
        """
        texts = several_texts("roots", roots, "a folder, or several in a list")
        return cls(tuple(map(root_of, texts)), any_spark_setting)


WHOLE = Trust(any_spark_setting=True)
"""For commands that do not start Spark, or check its settings when they do."""

_COUNT = "(?:[a-zA-Z0-9]+)"
_S3A = (
    r"(?:bucket\.[A-Za-z0-9._-]+?\.)?(?:"
    r"endpoint(?:\.region|\.fips)?|access\.key|secret\.key|session\.token|path\.style\.access|requester\.pays\.enabled"
    r"|connection\.[a-z.]+|attempts\.maximum|retry\.[a-z.]+|threads\.[a-z]+|max\.total\.tasks|multipart\.[a-z.]+"
    r"|block\.size|readahead\.range|(?:experimental\.)?input\.fadvise|performance\.flags|list\.version"
    r"|encryption\.(?:algorithm|key)|server-side-encryption-algorithm|server-side-encryption\.key"
    r"|fast\.upload(?:\.active\.blocks)?|change\.detection\.(?:mode|source|version\.required)|paging\.maximum"
    r"|assumed\.role\.(?:arn|session\.name|session\.duration|sts\.endpoint|sts\.endpoint\.region))"
)
_LISTED = re.compile(
    "|".join(
        (
            r"spark\.app\.name|spark\.master|spark\.submit\.deployMode",
            r"spark\.(?:driver|executor)\.(?:cores|memory|memoryOverhead|memoryOverheadFactor)",
            r"spark\.driver\.(?:host|port|bindAddress|maxResultSize|blockManager\.port)",
            r"spark\.executor\.(?:instances|pyspark\.memory|heartbeatInterval)",
            r"spark\.blockManager\.port|spark\.port\.maxRetries",
            r"spark\.cores\.max|spark\.default\.parallelism|spark\.task\.(?:cpus|maxFailures)",
            rf"spark\.(?:dynamicAllocation|memory|rpc|speculation|locality)\.{_COUNT}(?:\.{_COUNT})*",
            r"spark\.network\.(?:timeout|timeoutInterval|maxRemoteBlockSizeFetchToMem)",
            r"spark\.speculation|spark\.local\.dir|spark\.log\.level",
            r"spark\.scheduler\.(?:mode|minRegisteredResourcesRatio|maxRegisteredResourcesWaitingTime)",
            r"spark\.shuffle\.(?:compress|spill\.compress|service\.enabled|service\.port|file\.buffer)",
            r"spark\.(?:authenticate|network\.crypto\.enabled|io\.encryption\.enabled)",
            r"spark\.python\.worker\.(?:memory|reuse)|spark\.pyspark\.memory",
            r"spark\.ui\.(?:enabled|port|showConsoleProgress|retained[A-Z]\w+)|spark\.sql\.ui\.retainedExecutions",
            r"spark\.yarn\.(?:queue|am\.memory|am\.cores|priority)",
            r"spark\.sql\.shuffle\.partitions|spark\.sql\.autoBroadcastJoinThreshold|spark\.sql\.caseSensitive",
            r"spark\.sql\.(?:session\.timeZone|ansi\.enabled|debug\.maxToStringFields)",
            rf"spark\.sql\.adaptive\.(?:enabled|coalescePartitions\.{_COUNT}|skewJoin\.{_COUNT})",
            rf"spark\.sql\.files\.{_COUNT}",
            r"spark\.sql\.parquet\.(?:compression\.codec|outputTimestampType|filterPushdown|mergeSchema)",
            rf"spark\.sql\.execution\.arrow\.{_COUNT}(?:\.{_COUNT})*",
            r"spark\.sql\.streaming\.(?:minBatchesToRetain|numRecentProgressUpdates|pollingDelay|metricsEnabled)",
            r"spark\.sql\.streaming\.(?:noDataMicroBatches\.enabled|multipleWatermarkPolicy|stopTimeout)",
            rf"spark\.sql\.streaming\.stateStore\.(?:minDeltasForSnapshot|maintenanceInterval|"
            rf"checkpointFormatVersion|rocksdb\.{_COUNT}(?:\.{_COUNT})*)",
            rf"spark\.hadoop\.fs\.s3a\.{_S3A}",
            r"spark\.hadoop\.fs\.azure\.account\.(?:key|auth\.type|oauth2\.client\.(?:id|secret|endpoint))(?:\.[\w.-]+)?",
            r"spark\.hadoop\.fs\.gs\.project\.id",
        )
    )
)
"""Settings that neither name a class, a program or its arguments, nor an environment or a file to load."""

_CLASSES_OF = {
    re.compile(
        r"spark\.hadoop\.fs\.s3a\.(?:bucket\.[A-Za-z0-9._-]+\.)?aws\.credentials\.provider"
    ): re.compile(
        r"(?:(?:org\.apache\.hadoop\.fs\.s3a|software\.amazon\.awssdk\.auth\.credentials|com\.amazonaws\.auth)"
        r"\.(?:auth\.)?[A-Za-z]+(?:\s*,\s*)?)+"
    ),
    re.compile(r"spark\.serializer"): re.compile(r"org\.apache\.spark\.serializer\.(?:Kryo|Java)Serializer"),
    re.compile(r"spark\.(?:io|sql\.streaming\.stateStore)\.compression\.codec"): re.compile(
        r"lz4|lzf|snappy|zstd"
    ),
    re.compile(r"spark\.sql\.streaming\.stateStore\.providerClass"): re.compile(
        r"org\.apache\.spark\.sql\.execution\.streaming\.state\.[A-Za-z0-9]+"
    ),
    re.compile(r"spark\.sql\.streaming\.checkpointFileManagerClass"): re.compile(
        r"org\.apache\.spark\.(?:sql\.execution\.streaming|internal\.io\.cloud)\.[A-Za-z0-9.]+"
    ),
}
"""Settings that name a class -> the values that are harmless."""


def is_listed(name: str, value: str) -> bool:
    """Return whether every pipeline file may give a setting of Spark this value."""
    if _LISTED.fullmatch(name):
        return True
    return any(names.fullmatch(name) and values.fullmatch(value) for names, values in _CLASSES_OF.items())


def check_spark_settings(document: Document, node: yaml.Node, trust: Trust) -> None:
    """Report each setting of Spark that the pipeline file may not set."""
    for entry in document.mapping(node, "`spark`") or []:
        value = entry.value.value if isinstance(entry.value, yaml.ScalarNode) else ""
        if not trust.any_spark_setting and not is_listed(entry.name, value):
            document.problem(
                "E0838",
                f"a pipeline file may not set `{entry.name}`",
                entry.value,
                "it can run code, or nobody has checked that it cannot",
                "if you trust the file, run it with --allow-spark-settings",
            )
        if entry.name == "spark.local.dir":
            for place in value.split(","):
                check_place(document, entry.value, place.strip())
