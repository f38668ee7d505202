"""Attack: a statement of `gridstat pipeline query` that runs a program, writes, or reads other
files.

Each statement once did what its name says, or could have with another setting. All of them are
refused before Spark analyses them, so that no file is opened and no command is started.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from gridstat.model.errors import NotReadOnly, UnknownName
from gridstat.pipeline.pipeline_folder import PipelineFolder
from gridstat.pipeline.queries import make_views, run_statement
from gridstat.pipeline.read_only_plan import FUNCTIONS, checked_plan
from tests.spark.made_logs import grow, open_log, record_streams

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SECRET = "not,for,you"
TOUCH = "reflect('java.io.File', 'createTempFile', 'attack', '.made')"

PROGRAMS = {
    "script": "select transform(stream) using 'touch {made}' as (a string) from log_streams",
    "map script": "from log_streams map stream using 'touch {made}' as (a string)",
    "reduce script": "from log_streams reduce stream using 'touch {made}' as (a string)",
    "script in a subquery": "select * from (select transform(1) using 'touch {made}' as (a))",
    "script in a common table": "with x as (select transform(1) using 'touch {made}' as (a)) "
    "select * from x",
    "reflect": "select reflect('java.lang.System', 'setProperty', 'attack', 'done')",
    "java_method": "select java_method('java.lang.System', 'setProperty', 'attack', 'done')",
    "try_reflect": "select try_reflect('java.lang.System', 'setProperty', 'attack', 'done')",
    "reflect by its whole name": "select system.builtin.reflect('java.lang.System', 'getenv')",
    "reflect in capitals": "select REFLECT('java.lang.System', 'getProperty', 'user.home')",
    "reflect in quotes": "select `reflect`('java.lang.System', 'getProperty', 'user.home')",
    "reflect in a filter": f"select 1 from log_streams where {TOUCH} is null",
    "reflect in a join": f"select 1 from log_streams a join log_streams b on {TOUCH} = 'x'",
    "reflect in an order": f"select 1 from log_streams order by {TOUCH}",
    "reflect in a group": f"select count(*) from log_streams group by {TOUCH}",
    "reflect in a having": f"select count(*) from log_streams having {TOUCH} = 'x'",
    "reflect in a window": f"select sum(stream) over (order by {TOUCH}) from log_streams",
    "reflect in a named window": "select sum(stream) over w from log_streams "
    f"window w as (order by {TOUCH})",
    "reflect in a scalar subquery": f"select (select {TOUCH})",
    "reflect in exists": f"select 1 where exists (select {TOUCH})",
    "reflect in a list": f"select 1 where 'a' in ('b', {TOUCH})",
    "reflect in a common table": f"with x as (select {TOUCH} as a) select * from x",
    "reflect in an inner common table": f"select * from (with x as (select {TOUCH} as a) "
    "select * from x)",
    "reflect in a recursive table": "with recursive x(a) as (select 1 union all "
    f"select a + length({TOUCH}) from x where a < 2) select * from x",
    "reflect in values": f"values ({TOUCH})",
    "reflect in values of a from": f"select * from values ({TOUCH}) as t(a)",
    "reflect in a limit": f"select 1 limit length({TOUCH})",
    "reflect in an offset": f"select 1 offset length({TOUCH})",
    "reflect in a lambda": f"select transform(array(1), x -> {TOUCH})",
    "reflect in a table function": f"select * from range(length({TOUCH}))",
    "reflect in a lateral view": f"select * from log_streams lateral view explode(array({TOUCH})) "
    "as a",
    "reflect in a lateral join": f"select * from log_streams, lateral (select {TOUCH})",
    "reflect in a pivot": f"select * from log_streams pivot (max({TOUCH}) for stream in (1, 2))",
    "reflect in an unpivot": f"select * from (select {TOUCH} as a, 'x' as b) "
    "unpivot (c for d in (a, b))",
    "reflect in a case": f"select case when 1 = 1 then {TOUCH} end",
    "reflect in a filter of an aggregate": f"select count(1) filter (where {TOUCH} = 'a')",
    "reflect in an identifier": f"select * from identifier({TOUCH})",
    "identifier as a function": "select identifier('reflect')('java.lang.System', 'getenv')",
    "identifier of parts": "select identifier('ref' || 'lect')('java.lang.System', 'getenv')",
    "reflect behind a pipe": f"from log_streams |> extend {TOUCH} as a",
    "reflect behind a plus": f"select + {TOUCH}",
    "reflect behind two signs": f"select + - + {TOUCH}",
    "reflect between": f"select 1 where 'a' between {TOUCH} and 'b'",
    "reflect in nvl": f"select nvl({TOUCH}, 'a')",
    "reflect in a named argument": f"select mask(str => {TOUCH})",
    "reflect in a cast": f"select {TOUCH}::int, cast({TOUCH} as string)",
    "reflect in an interval": f"select now() - make_interval(length({TOUCH}))",
    "reflect in a replaced column": f"select * except (variable), {TOUCH} from log_streams",
    "reflect in timestampdiff": f"select timestampdiff(hour, now(), {TOUCH})",
    "reflect in trim": f"select trim(both 'a' from {TOUCH})",
    "reflect in a subscript": f"select array(1)[length({TOUCH})]",
    "reflect in grouping sets": "select count(*) from log_streams "
    f"group by grouping sets (({TOUCH}), ())",
    "reflect in within group": f"select listagg(stream) within group (order by {TOUCH}) "
    "from log_streams",
    "reflect in distribution": f"select * from log_streams distribute by {TOUCH}",
    "reflect in a table as an argument": f"select * from explode(array({TOUCH}))",
    "reflect in a set operation": f"select 'a' union all select {TOUCH}",
    "reflect in a hint": f"select /*+ repartition({TOUCH}) */ 1",
    "jar": "add jar '{made}.jar'",
    "file": "add file '{secret}'",
    "archive": "add archive '{secret}'",
    "function": "create function attack as 'org.example.Attack' using jar '{made}.jar'",
    "temporary function": "create temporary function attack as 'java.lang.Runtime'",
    "function in sql": "create temporary function attack() returns int return 1",
    "immediate": "execute immediate 'select 1'",
    "block": "begin select 1; end",
    "block with a handler": "begin declare x int default 1; set x = 2; select x; end",
    "call": "call system.attack()",
    "variable": "declare variable attack int default 1",
    "set a variable": "set variable attack = 1",
}
WRITES = {
    "table at a place": "create table attack using csv location '{made}' as select 1 as a",
    "table of a format": "create table attack using csv options (path '{secret}')",
    "table": "create table attack as select 1 as a",
    "external table": "create table attack (a int) using parquet location '{made}'",
    "view": "create view attack as select 1",
    "temporary view": "create temporary view attack as select 1",
    "temporary view of a file": "create temporary view attack using text options (path '{secret}')",
    "replaced view": "create or replace temporary view log_events as select 1",
    "folder in csv": "insert overwrite directory '{made}' using csv select 1",
    "local folder": "insert overwrite local directory '{made}' stored as textfile select 1",
    "insert": "insert into log_streams select * from log_streams",
    "insert into a file": "insert into csv.`{made}` select 1",
    "several inserts": "from log_streams insert into a select 1 insert into b select 2",
    "behind a common table": "with x as (select 1) insert into log_streams select * from x",
    "load": "load data inpath '{secret}' into table log_streams",
    "copy": "copy into log_streams from '{secret}'",
    "update": "update log_streams set stream = 1",
    "delete": "delete from log_streams",
    "merge": "merge into log_streams a using log_streams b on a.stream = b.stream "
    "when matched then delete",
    "truncate": "truncate table log_streams",
    "drop": "drop view log_streams",
    "drop table": "drop table log_streams",
    "alter": "alter view log_streams as select 1",
    "database": "create database attack location '{made}'",
    "use": "use default",
    "set": "set spark.sql.runSQLOnFiles = true",
    "set alone": "set",
    "all settings": "set -v",
    "reset": "reset",
    "time zone": "set time zone 'UTC'",
    "catalog": "set catalog spark_catalog",
    "cache": "cache table attack as select 1",
    "uncache": "uncache table log_streams",
    "refresh": "refresh '{secret}'",
    "repair": "msck repair table log_streams",
    "analyse": "analyze table log_streams compute statistics",
}
FILES = {
    "csv": "select * from csv.`{secret}`",
    "text": "select * from text.`{secret}`",
    "json": "select * from json.`{secret}`",
    "parquet": "select * from parquet.`{secret}`",
    "orc": "select * from orc.`{secret}`",
    "binary": "select * from binaryFile.`{secret}`",
    "the log's own format": "select * from gridstat.`{secret}`",
    "table": "table csv.`{secret}`",
    "by its name as text": "select * from identifier('csv.`{secret}`')",
    "by a joined text": "select * from identifier('csv' || '.`{secret}`')",
    "in a subquery": "select * from log_streams where variable in (select * from csv.`{secret}`)",
    "in a scalar subquery": "select (select max(value) from text.`{secret}`)",
    "in a common table": "with x as (select * from csv.`{secret}`) select * from x",
    "in an unused common table": "with x as (select * from csv.`{secret}`) select 1",
    "in a lateral join": "select * from log_streams, lateral (select * from csv.`{secret}`)",
    "behind a pipe": "from text.`{secret}` |> limit 1",
    "in a union": "select variable from log_streams union select * from csv.`{secret}`",
    "with options": "select * from log_streams with (path = '{secret}')",
    "over the network": "select * from text.`http://127.0.0.1:1/`",
    "as a stream": "select * from stream log_streams",
    "an older time": "select * from log_streams timestamp as of '2020-01-01'",
    "read_files": "select * from read_files('{secret}')",
    "of another catalog": "select * from spark_catalog.default.log_streams",
    "of the global views": "select * from global_temp.log_streams",
    "of the system": "select * from system.session.log_streams",
    "logs of the workers": "select * from python_worker_logs()",
    "a table function": "select * from sql_keywords()",
    "name of a file": "select input_file_name() from log_streams",
    "description by avro": "select from_protobuf(encode('a', 'utf-8'), 'A', '{secret}')",
    "entity of xml": "select xpath_string('<a/>', 'a')",
    "of the user": "select current_user()",
    "of the user without brackets": "select current_user",
    "description of a file": "describe csv.`{secret}`",
    "description of a function": "describe function extended reflect",
    "description of a query": "describe query select * from csv.`{secret}`",
    "description of a database": "describe database extended default",
    "plan": "explain select * from csv.`{secret}`",
    "tables of a database": "show tables in default",
    "table extended": "show table extended like '*'",
    "functions": "show functions",
    "databases": "show databases",
    "columns": "show columns in log_streams",
    "how it was made": "show create table log_streams",
    "parameter": "select :a",
    "mark": "select ?",
    "comment in front": "/* select */ -- select\n add jar '{made}.jar'",
    "two statements": "select 1; add jar '{made}.jar'",
}
ATTACKS = {
    f"{kind}: {name}": statement
    for kind, named in (("program", PROGRAMS), ("write", WRITES), ("file", FILES))
    for name, statement in named.items()
}
ANSWERED = [
    "show tables",
    "describe log_events",
    "SELECT DISTINCT variable FROM log_streams",
    "select stream, avg(value) as mean from log_events group by stream having count(*) > 1 "
    "order by 2 desc limit 3",
    "with recent as (select * from LOG_EVENTS where created_ns > 0) select count(*) from recent",
]
PLANNED = [
    "select s.variable, e.value, lag(e.value) over (partition by e.stream order by e.record) "
    "from log_events e join log_streams s on e.stream = s.stream",
    "select window(created, '1 second').start as second, count(*) from log_events group by 1",
    "select date_trunc('second', created), percentile(value, 0.95), stddev(value), "
    "min_by(value, record), approx_percentile(value, 0.5) from log_events group by 1",
    "select * from log_events where variable like '%pmu-1%' and value between 1 and 9 "
    "or stream in (select stream from log_streams where every = 1)",
    "select case when value > 3 then 'high' else 'low' end, cast(value as int), value::string, "
    "coalesce(value, 0), if(value is null, 1, 2), round(value, 1), abs(-value) from log_events",
    "select stream, exists (select 1 from log_streams s where s.stream = e.stream) "
    "from log_events e",
    "select stream from log_events union all select stream from log_streams "
    "except select 4 intersect select 2",
    "select * from log_events tablesample (5 rows)",
    "select stream, grouping(stream), count(distinct value), count(*) filter (where value > 1) "
    "from log_events group by rollup(stream)",
    "select * from (select stream, quality from values (1, 2) as t(stream, quality)) "
    "pivot (max(quality) for stream in (1, 2))",
    "select id, e from range(3) lateral view explode(sequence(1, 3)) as e",
    "select transform(array(1, 2), x -> x + 1)[0], struct(1 as a).a, map('a', 1)['a']",
    "select to_timestamp('2026-11-16 12:00:00') - interval 1 hour, current_timestamp()",
    "select current_date, current_timestamp, now(), timestampdiff(hour, created, now()), "
    "trim(both 'a' from variable), substring(variable from 1 for 2), position('a' in variable), "
    "variable || 'b', value % 2, -value, not value > 1, value is distinct from 2 from log_events",
    "select sum(value) over w, avg(value) over w from log_events "
    "window w as (partition by stream order by record rows between 1 preceding and current row)",
    "with recursive n(i) as (select 1 union all select i + 1 from n where i < 5) select i from n",
    "select * except (options) from log_events order by all limit 3 offset 1",
    "select * from (select 1 as a, 2 as b) unpivot (value for name in (a, b))",
    "select stream, v from log_streams, lateral (select stream + 1 as v)",
    "select (select max(value) from log_events), any(value > 1), listagg(stream, ',') "
    "from log_events",
    "select e.stream from log_events e left anti join log_streams s on e.stream + 9 = s.stream",
    "from log_events |> where value > 1 |> aggregate avg(value) group by stream |> limit 2",
    "select /* a comment */ extract(hour from created), unix_micros(created) from log_events",
]


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("attacked")
    made = PipelineFolder(path)
    record_streams(made.log, ["float64"] * 4)
    with open_log(made.log) as log:
        grow(log, 1)
    (path / "secret").write_text(SECRET)
    yield path
    for name in ("log_events", "log_streams"):
        spark.catalog.dropTempView(name)


@pytest.mark.parametrize("name", ATTACKS)
def test_a_statement_that_does_more_than_read_the_tables_is_refused(
    spark: SparkSession, place: Path, name: str
) -> None:
    before = sorted(each.name for each in place.iterdir())
    statement = ATTACKS[name].format(made=place / "made", secret=place / "secret")
    with pytest.raises((NotReadOnly, UnknownName)) as refused:
        run_statement(spark, PipelineFolder(place), statement).collect()
    assert refused.value.hint
    assert SECRET not in str(refused.value)
    assert sorted(each.name for each in place.iterdir()) == before
    # Only what Spark itself cannot parse, or a call that is no SQL, has another code.
    if not isinstance(refused.value, NotReadOnly):
        assert "PARSE_SYNTAX_ERROR" in str(refused.value)


@pytest.mark.parametrize("statement", ANSWERED)
def test_a_question_over_the_tables_is_answered(
    spark: SparkSession, place: Path, statement: str
) -> None:
    assert run_statement(spark, PipelineFolder(place), statement).limit(50).collect()


@pytest.mark.parametrize("statement", PLANNED)
def test_a_question_in_other_words_of_sql_is_planned(
    spark: SparkSession, place: Path, statement: str
) -> None:
    assert run_statement(spark, PipelineFolder(place), statement).columns


def test_variables_of_the_process_are_not_put_into_a_statement(
    spark: SparkSession, place: Path
) -> None:
    statement = "select '${env:PATH}', '${system:user.home}', '${spark.app.name}'"
    found = run_statement(spark, PipelineFolder(place), statement).collect()
    assert tuple(found[0]) == ("${env:PATH}", "${system:user.home}", "${spark.app.name}")


def test_all_functions_that_are_allowed_pass_with_spark_s_own_examples(
    spark: SparkSession, place: Path
) -> None:
    tables = make_views(spark, PipelineFolder(place))
    catalog = spark._jsparkSession.sessionState().catalog()
    java = spark._jvm
    assert java is not None
    identifier = java.org.apache.spark.sql.catalyst.FunctionIdentifier
    refused = {}
    for name in sorted(FUNCTIONS):
        examples = catalog.lookupFunctionInfo(identifier(name)).getExamples()
        for statement in re.findall(r"> (SELECT .*?);\n", examples, re.DOTALL)[:1]:
            try:
                checked_plan(spark, statement, tables)
            except NotReadOnly as error:
                refused[statement] = str(error)
            except (Py4JError, PySparkException):
                continue  # Some examples need a setting, or a type, that is off.
    assert not refused


def test_tables_and_views_that_are_not_the_pipeline_s_are_refused(
    spark: SparkSession, place: Path
) -> None:
    spark.sql("create table attacked using parquet as select 1 as a")
    spark.sql("create temporary view attacked_view as select 1 as a")
    spark.sql(f"create temporary view attacked_file using text options (path '{place / 'secret'}')")
    try:
        for name in ("attacked", "attacked_view", "attacked_file"):
            for statement in (f"select * from {name}", f"describe {name}"):
                with pytest.raises(NotReadOnly):
                    run_statement(spark, PipelineFolder(place), statement)
    finally:
        spark.sql("drop table attacked")
        spark.catalog.dropTempView("attacked_view")
        spark.catalog.dropTempView("attacked_file")


def test_a_function_that_python_registered_is_refused_and_takes_no_allowed_name(
    spark: SparkSession, place: Path
) -> None:
    for name in ("attacked", "initcap"):
        spark.udf.register(name, lambda text: f"{text}!")
    try:
        with pytest.raises(NotReadOnly):
            run_statement(spark, PipelineFolder(place), "select attacked('a')")
        found = run_statement(spark, PipelineFolder(place), "select initcap('a')").collect()
        assert found[0][0] == "A"
    finally:
        for name in ("attacked", "initcap"):
            spark.sql(f"drop temporary function {name}")


@pytest.mark.parametrize(
    "statement",
    [
        "select 1" + " + 1" * 6_000,
        "select " + "(" * 4_000 + "1" + ")" * 4_000,
        "select " + "-" * 10 + "(select " * 300 + "1" + ")" * 300,
        "select 1" + " union all select 1" * 900,
        "select " + "abs(" * 1_500 + "1" + ")" * 1_500,
        "",
        ";",
        "select 1 \0",
    ],
    ids=["long", "brackets", "subqueries", "unions", "calls", "empty", "semicolon", "zero"],
)
def test_a_statement_beyond_all_bounds_is_an_error_in_words(
    spark: SparkSession, place: Path, statement: str
) -> None:
    with pytest.raises((NotReadOnly, UnknownName)) as refused:
        run_statement(spark, PipelineFolder(place), statement)
    assert len(str(refused.value)) < 1_000
