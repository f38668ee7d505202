"""Read the recorded events of a recorder as a table in Spark: a few lines, here or in a notebook.

    python examples/history.py recorded --variable c1/hill/pmu-1/frequency

The folder is the one that the recorder writes to; it may write meanwhile.
"""

from __future__ import annotations

import argparse

from pyspark.sql import functions as F

from gridstat.pipeline.spark_session import SparkSettings, spark_session


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Show the newest seconds of recorded variables.")
    parser.add_argument("folder", help="where the recorder writes")
    parser.add_argument("--variable", default="**", help="only this name or pattern (%(default)s)")
    parser.add_argument("--since", default="1970-01-01T00:00Z", help="from when on (%(default)s)")
    parser.add_argument("--count", type=int, default=10, help="print so many (%(default)s)")
    parser.add_argument("--master", default="local[2]", help="where Spark runs (%(default)s)")
    return parser.parse_args()


def main() -> None:
    options = arguments()

    # The lines that read: options of the source filter rows before they reach Spark.
    spark = spark_session(SparkSettings(master=options.master))
    source = spark.read.format("gridstat")
    source = source.option("from", options.since).option("variables", options.variable)
    recent = source.load(options.folder)

    seconds = recent.groupBy("variable", F.date_trunc("second", "created").alias("second"))
    means = seconds.agg(F.avg("value").alias("mean"), F.count("value").alias("events"))
    rows = means.orderBy(F.desc("second"), "variable").limit(options.count)
    for row in rows.collect():
        print(f"{row.second:%H:%M:%S} {row.variable} {row.mean:.3f} of {row.events} events")
    spark.stop()


if __name__ == "__main__":
    main()
