"""What the workers need but older versions of PySpark lack. Each function names the version that makes it
unnecessary.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def mend_state_reader() -> None:
    """Make PySpark 3.5 read the places of groups as integers. Unnecessary from 4.0 on: PySpark does so
    itself.

    `applyInPandasWithState` gets a column of structs, with NULL after the last group. In pandas, the integers
    of such structs become floats, which cannot be used to slice a batch.
    """
    import pyspark

    if not pyspark.__version__.startswith("3.5."):
        return
    from pyspark.sql.pandas import serializers

    reader: Any = vars(serializers)["ApplyInPandasWithStateSerializer"]
    usual = reader.arrow_to_pandas

    def arrow_to_pandas(self: Any, column: Any, *args: Any, **options: Any) -> Any:
        if not pa.types.is_struct(column.type) or column.type.get_field_index("startOffset") < 0:
            return usual(self, column, *args, **options)
        import pandas as pd

        return pd.Series(column.to_pylist(), dtype=object)

    reader.arrow_to_pandas = arrow_to_pandas
