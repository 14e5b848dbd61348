"""Runs a function over the Arrow batches of each task: Spark's mapInArrow without pandas.

DataFrame.mapInArrow calls pandas_udf, which requires pandas although an Arrow map does not use it, and workers run
without it. So the plan is built here, as Spark 4.3 does. Used by the archive pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def map_in_arrow(rows: DataFrame, task: Callable[[Iterable[Any]], Iterator[Any]], schema: str) -> DataFrame:
    """The rows that `task` returns for the record batches of each partition."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    function = UserDefinedFunction(task, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    mapped = function(*[rows[name] for name in rows.columns])
    java: Any = rows
    return DataFrame(java._jdf.mapInArrow(mapped._jc, False, None), rows.sparkSession)
