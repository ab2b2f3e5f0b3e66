"""Deduplicate a stream of Spark, exactly once, with `foreachBatch`.

    python with_spark.py INDEX INPUT_FOLDER OUTPUT_FOLDER CHECKPOINT_FOLDER

Parquet files with the columns `id` and `text` arrive in INPUT_FOLDER. The new rows of each batch are in
OUTPUT_FOLDER/batch=N.parquet. Spark repeats a batch after a crash. The number of the batch is committed with its rows,
in one step: if the index has the number, the file is there, too. If not, the index has no row of the batch. The batch
then gets the same verdicts again, and its file is replaced.
"""

import sys

import pyarrow.compute as pc
import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession

from stream_lsh import Deduplicator, Settings

if __name__ == "__main__":
    index, source, target, checkpoint = sys.argv[1:]
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    deduplicator = Deduplicator(Settings(threshold=0.7), index=index, commit="manual")

    def write(batch: DataFrame, number: int) -> None:
        if deduplicator.facts.get("batch", -1) >= number:
            return
        rows = batch.orderBy("id").toArrow()  # a repeated batch has the same order
        kinds = deduplicator.process_arrow(rows)["kind"]
        pyarrow.parquet.write_table(rows.filter(pc.equal(kinds, "unique")), f"{target}/batch={number}.parquet")
        deduplicator.commit({"batch": number})

    stream = spark.readStream.schema("id long, text string").option("maxFilesPerTrigger", 1).parquet(source)
    query = stream.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()
    deduplicator.close()
