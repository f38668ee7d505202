"""Check that a statement in SQL only reads the pipeline's own tables.

A statement is data from outside: Spark's SQL can also run a program, write a file, change a setting
or read any file of the machine. So `checked_plan` decides by what is allowed, never by what is
forbidden, and twice:

1. The parsed plan. Every node, expression, function and table name is known and only reads. Nothing
   is analysed before, because Spark opens files, and may evaluate functions, as it analyses.
2. The analysed plan. Every node and expression is known again, or belongs to a function that the
   statement has named, and rows come only from the pipeline's views.

The plan that was checked is the one that runs; the text is not parsed a second time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from py4j.java_gateway import JavaObject
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from gridstat.model.errors import NotReadOnly

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pyspark.sql import SparkSession

STATEMENT_LETTERS_MAX: Final = 20_000
"""Longest statement; Spark parses by recursion, so a longer one could exhaust its stack."""
PARTS_MAX: Final = 20_000
"""Most parts of a plan, for the same reason."""

HINT: Final = (
    "ask by `select`, `show tables` or `describe TABLE` over the pipeline's tables; "
    "docs/operating/pipeline.md lists what a question may use"
)

_FUNCTIONS: Final = """
abs acos acosh add_months aggregate any any_value approx_count_distinct approx_percentile
array array_agg array_append array_compact array_contains array_distinct array_except
array_insert array_intersect array_join array_max array_min array_position array_prepend
array_remove array_repeat array_size array_sort array_union arrays_overlap arrays_zip ascii
asin asinh atan atan2 atanh avg base64 between bigint bin binary bit_and bit_count bit_get
bit_length bit_or bit_xor bool_and bool_or boolean bround btrim cardinality cbrt ceil
ceiling char char_length character_length chr coalesce collect_list collect_set concat
concat_ws contains conv convert_timezone corr cos cosh cot count count_if covar_pop
covar_samp crc32 csc cume_dist curdate current_date current_timestamp current_timezone date
date_add date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd
datediff datepart day dayname dayofmonth dayofweek dayofyear decimal decode degrees
dense_rank div double e element_at elt encode endswith equal_null every exists exp explode
explode_outer expm1 extract factorial filter find_in_set first first_value flatten float
floor forall format_number format_string from_unixtime from_utc_timestamp get
get_json_object getbit greatest grouping grouping_id hash hex histogram_numeric hour hypot
if ifnull ilike initcap inline inline_outer instr int isnan isnotnull isnull
json_array_length json_object_keys kurtosis lag last last_day last_value lcase lead least
left len length levenshtein like listagg ln localtimestamp locate log log10 log1p log2 lower
lpad ltrim make_date make_dt_interval make_interval make_timestamp map map_concat
map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys map_values
map_zip_with max max_by md5 mean median min min_by minute mod mode
monotonically_increasing_id month monthname months_between named_struct nanvl negative
next_day not now nth_value ntile nullif nullifzero nvl nvl2 octet_length overlay
percent_rank percentile percentile_approx percentile_cont percentile_disc pi pmod posexplode
posexplode_outer position positive pow power printf quarter radians rand randn random rank
reduce regexp regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like
regexp_replace regexp_substr regr_avgx regr_avgy regr_count regr_intercept regr_r2
regr_slope regr_sxx regr_sxy regr_syy repeat replace reverse right rint rlike round
row_number rpad rtrim sec second sequence session_window sha sha1 sha2 shiftleft shiftright
shiftrightunsigned sign signum sin sinh size skewness slice smallint some sort_array space
split split_part sqrt stack startswith std stddev stddev_pop stddev_samp str_to_map string
string_agg struct substr substring substring_index sum tan tanh timestamp timestamp_micros
timestamp_millis timestamp_nanos timestamp_seconds tinyint to_binary to_char to_date to_json
to_number to_timestamp to_unix_timestamp to_utc_timestamp to_varchar transform
transform_keys transform_values translate trim trunc try_add try_avg try_divide
try_element_at try_mod try_multiply try_subtract try_sum try_to_date try_to_number
try_to_timestamp typeof ucase unbase64 unhex unix_date unix_micros unix_millis unix_nanos
unix_seconds unix_timestamp upper var_pop var_samp variance weekday weekofyear width_bucket
window window_time xxhash64 year zeroifnull zip_with
"""
FUNCTIONS: Final = frozenset(_FUNCTIONS.split())
"""Functions that compute their result from their arguments, and touch nothing else."""

TABLE_FUNCTIONS: Final = frozenset(
    {
        "explode",
        "explode_outer",
        "inline",
        "inline_outer",
        "posexplode",
        "posexplode_outer",
        "range",
        "stack",
    }
)
"""Functions that a statement may use as a table."""

_NODES: Final = """
Aggregate CTERelationDef CTERelationRef Distinct Except Expand Filter Generate GlobalLimit
Intersect Join LateralJoin LocalLimit LocalRelation Offset OneRowRelation Pivot Project
Range ResolvedInlineTable Sample Sort SubqueryAlias Tail Union UnionLoop UnionLoopRef
Unpivot UnresolvedHaving UnresolvedInlineTable UnresolvedRelation
UnresolvedSubqueryColumnAliases UnresolvedTVFAliases UnresolvedTableValuedFunction
UnresolvedWith View Window WithCTE WithWindowDefinition
"""
NODES: Final = frozenset(_NODES.split())
"""Nodes of a plan that only read, by the names of Spark's classes."""

_EXPRESSIONS: Final = """
Add AggregateExpression Alias And AnyValue AttributeReference Average Between BinaryPad
BinaryPredicate BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CaseWhen Cast Ceil Coalesce Concat
Contains CreateArray CreateMap CreateNamedStruct Cube CurrentDate CurrentRow CurrentTimeZone
CurrentTimestamp DateAdd DateAddInterval DateAddYMInterval DatePart DateSub DatetimeSub Divide
DivideDTInterval DivideInterval DivideYMInterval ElementAt EndsWith EqualNullSafe EqualTo Exists
Explode Extract First Floor GeneratorOuter GetArrayItem GetArrayStructFields GetMapValue
GetStructField GetTimestamp GreaterThan GreaterThanOrEqual Grouping GroupingID GroupingSets Hour
ILike If In InSubquery Inline IntegralDivide IsNaN IsNotNull IsNull KnownNullable LambdaFunction
Last LateralColumnAliasReference LateralSubquery Left LessThan LessThanOrEqual Like LikeAll
LikeAny ListQuery Literal LocalTimestamp MakeTimestamp MakeTimestampFromDateTime MaxBy MaxMinByK
MinBy Minute Mode MultiAlias Multiply MultiplyDTInterval MultiplyInterval MultiplyYMInterval
NamedArgumentExpression NamedLambdaVariable Not NotLikeAll NotLikeAny Now NullIf Nvl Or
OuterReference Overlay ParseToDate ParseToTimestamp PercentileCont PercentileDisc PipeExpression
PipeOperator PivotFirst PosExplode PreciseTimestampConversion RLike Remainder Right Rollup
RoundCeil RoundFloor ScalarSubquery Second SessionWindow ShiftLeft ShiftRight ShiftRightUnsigned
SortOrder SpecifiedWindowFrame Stack StartsWith StringInstr StringInstrWithOccurrence StringLPad
StringLocate StringRPad StringTrim StringTrimLeft StringTrimRight Substring Subtract SubtractDates
SubtractTimestamps Sum TempResolvedColumn TimeWindow TimestampAdd TimestampAddInterval
TimestampAddYMInterval TimestampDiff ToCharacter TryEval UnaryMinus UnaryPositive
UnboundedFollowing UnboundedPreceding UnresolvedAlias UnresolvedAttribute UnresolvedExtractValue
UnresolvedFunction UnresolvedGenerator UnresolvedNamedLambdaVariable UnresolvedOrdinal
UnresolvedStar UnresolvedStarExceptOrReplace UnresolvedStarWithColumns UnresolvedWindowExpression
UnspecifiedFrame WindowExpression WindowSpecDefinition WindowTime
"""
EXPRESSIONS: Final = frozenset(_EXPRESSIONS.split())
"""Expressions of SQL's own syntax, and what Spark makes of allowed functions as it analyses."""

_SPARK: Final = "org.apache.spark.sql.catalyst."
_TYPES: Final = "org.apache.spark.sql.types."
_NODE_PACKAGES: Final = frozenset({"analysis", "plans.logical"})
_EXPRESSION_PACKAGES: Final = frozenset({"analysis", "expressions", "expressions.aggregate"})
_VALUES: Final = frozenset(
    {
        "java.util.UUID",
        "java.util.concurrent.atomic.AtomicReference",
        "org.apache.spark.sql.catalyst.expressions.GenericInternalRow",
        "org.apache.spark.sql.util.CaseInsensitiveStringMap",
        "scala.Enumeration$Val",
    }
)
"""Classes of values in a plan that contain no part of it."""
_REPLACEMENT: Final = "replacement"
"""Field of an expression with the one that is computed instead of it."""
_LEAVES: Final = frozenset({"Literal", "AttributeReference", "View"})
"""Parts of a plan that are judged without their own parts: constants, columns, our tables."""


def checked_plan(spark: SparkSession, statement: str, tables: Collection[str]) -> JavaObject:
    """Return the plan of a statement that only reads these tables; raise `NotReadOnly` if it does
    anything else.

    The plan is an object of Spark's Java, analysed if the statement is a query. Errors of Spark's
    parser and analyser are raised as they are.
    """
    if len(statement) > STATEMENT_LETTERS_MAX:
        raise NotReadOnly(
            f"the statement has {len(statement):,} letters",
            hint=f"a statement has at most {STATEMENT_LETTERS_MAX:,}",
        )
    state = spark._jsparkSession.sessionState()  # noqa: SLF001 - Python has no way to a plan.
    parsed = state.sqlParser().parsePlan(statement)
    parts = _PlanParts(spark)
    names = frozenset(name.lower() for name in tables)
    if _is_listing(parsed, names):
        return parsed
    functions = {used for part in parts.of(parsed) for used in _check_parsed(*part)}
    modes = _java(spark).org.apache.spark.sql.execution.CommandExecutionMode
    analysed = state.executePlan(parsed, modes.SKIP()).analyzed()
    made_by_functions = {_class_of(spark, state, name) for name in functions}
    for name, part in parts.of(analysed):
        _check_analysed(name, part, names, made_by_functions)
    return analysed


def run_plan(spark: SparkSession, plan: JavaObject) -> DataFrame:
    """Return the rows of a plan that `checked_plan` has returned."""
    rows = _java(spark).org.apache.spark.sql.classic.Dataset
    return DataFrame(rows.ofRows(spark._jsparkSession, plan), spark)  # noqa: SLF001 - As above.


def _is_listing(parsed: JavaObject, tables: frozenset[str]) -> bool:
    """Return whether a statement asks which tables there are, or which columns one has."""
    match _name_of(parsed):
        case "plans.logical.ShowTables":
            return _name_of(parsed.namespace()) == "analysis.CurrentNamespace"
        case "plans.logical.DescribeRelation":
            described = parsed.relation()
            is_table = _name_of(described) == "analysis.UnresolvedTableOrView"
            if not is_table or parsed.isExtended():
                return False
            return _checked_name(described.multipartIdentifier()) in tables
        case _:
            return False


def _check_parsed(name: str, part: JavaObject) -> Iterator[str]:
    """Raise `NotReadOnly` for a part of a parsed plan that is not known to read only; yield the
    name of the function, if the part is a call."""
    short = name.rpartition(".")[2]
    if not _is_known(name):
        raise _more_than_read(short)
    match short:
        case "UnresolvedRelation":
            _checked_name(part.multipartIdentifier())
            if part.isStreaming() or not part.options().isEmpty():
                raise NotReadOnly("a table is read as a stream or with options", hint=HINT)
        case "UnresolvedFunction":
            yield _checked_function(_text_parts(part.nameParts()), FUNCTIONS)
        case "UnresolvedGenerator":
            yield _checked_function([part.name().unquotedString()], FUNCTIONS)
        case "UnresolvedTableValuedFunction":
            yield _checked_function(_text_parts(part.name()), TABLE_FUNCTIONS)


def _check_analysed(name: str, part: JavaObject, tables: frozenset[str], made: set[str]) -> None:
    """Raise `NotReadOnly` for a part of an analysed plan that is not known to read only."""
    short = name.rpartition(".")[2]
    if short == "View":
        viewed = part.desc().identifier()
        if not part.isTempView() or viewed.table().lower() not in tables:
            raise NotReadOnly(f"{viewed.table()} is no table of the pipeline", hint=HINT)
    elif not _is_known(name) and name not in made:
        raise _more_than_read(short)


def _more_than_read(part: str) -> NotReadOnly:
    return NotReadOnly(
        f"the statement is refused: {part} is none of the parts that only read", hint=HINT
    )


def _checked_name(identifier: JavaObject) -> str:
    """Return the name of a table in small letters; refuse a file, or a table elsewhere."""
    parts = _text_parts(identifier)
    if len(parts) != 1:
        raise NotReadOnly(
            f"{'.'.join(parts)!r} is no table of the pipeline; files and other catalogs are not "
            "read",
            hint=HINT,
        )
    return parts[0].lower()


def _checked_function(parts: list[str], allowed: frozenset[str]) -> str:
    name = ".".join(parts).lower()
    if name not in allowed:
        raise NotReadOnly(f"the function {name!r} is not allowed in a question", hint=HINT)
    return name


def _text_parts(sequence: JavaObject) -> list[str]:
    return [str(sequence.apply(index)) for index in range(sequence.length())]


def _class_of(spark: SparkSession, state: JavaObject, function: str) -> str:
    """Return the class of the expressions that a function makes; of some, of their builder."""
    identifier = _java(spark).org.apache.spark.sql.catalyst.FunctionIdentifier(function)
    try:
        info = state.catalog().lookupFunctionInfo(identifier)
    except AnalysisException:
        return ""  # A function that is only a table.
    return str(info.getClassName()).removeprefix(_SPARK)


def _java(spark: SparkSession) -> JavaObject:
    return spark._jvm  # noqa: SLF001 - Plans are objects of Java.


class _PlanParts:
    """All nodes and expressions of a plan, wherever in their fields they are.

    A part is found through every field, list, pair and option, and not only as one of the children
    that Spark counts: common tables, subqueries and conditions are no children.
    """

    def __init__(self, spark: SparkSession) -> None:
        java = _java(spark)
        loader = java.java.lang.Thread.currentThread().getContextClassLoader()

        self._tree = loader.loadClass(f"{_SPARK}trees.TreeNode")
        self._replaced = loader.loadClass(f"{_SPARK}expressions.RuntimeReplaceable")
        self._collection = loader.loadClass("scala.collection.IterableOnce")
        self._product = loader.loadClass("scala.Product")
        self._forms: dict[str, _Form] = {}

    def of(self, plan: JavaObject) -> Iterator[tuple[str, JavaObject]]:
        """Yield every part of a plan with the name of its class, the plan first.

        Of an expression that Spark replaces, the arguments are parts, and the replacement, which
        Spark's own code makes of them, is none.
        """
        waiting, count = [plan], 0
        while waiting:
            value = waiting.pop()
            if not isinstance(value, JavaObject):
                continue  # A number, a text or nothing.
            form = self._form_of(value)
            if form.is_part:
                count += 1
                if count > PARTS_MAX:
                    raise NotReadOnly("the statement is too complex", hint="ask for less at once")
                yield form.name, value
            if form.has_fields:
                waiting += _fields_of(value, form)

    def _form_of(self, value: JavaObject) -> _Form:
        kind = value.getClass()
        name: str = kind.getName()
        if name not in self._forms:
            self._forms[name] = self._form(kind, name)
        return self._forms[name]

    def _form(self, kind: JavaObject, name: str) -> _Form:
        short = _short(name)
        if self._tree.isAssignableFrom(kind):
            is_replaced = self._replaced.isAssignableFrom(kind)
            is_leaf = short.rpartition(".")[2] in _LEAVES
            return _Form(short, is_part=True, has_fields=not is_leaf, is_replaced=is_replaced)
        if name.startswith(_TYPES) or name in _VALUES:
            return _Form(short)
        if self._collection.isAssignableFrom(kind):
            return _Form(short, has_fields=True, is_collection=True)
        if self._product.isAssignableFrom(kind):
            return _Form(short, has_fields=True)
        raise NotReadOnly(f"the statement has a value of an unknown kind: {name}", hint=HINT)


@dataclass(frozen=True, slots=True)
class _Form:
    """Description of a Java class within a plan."""

    name: str
    is_part: bool = False
    has_fields: bool = False
    is_collection: bool = False
    is_replaced: bool = False
    """True if Spark computes another expression instead, which its own code makes."""


def _fields_of(value: JavaObject, form: _Form) -> Iterator[JavaObject]:
    fields = value.iterator() if form.is_collection else value.productIterator()
    names = value.productElementNames() if form.is_replaced else None
    while fields.hasNext():
        field = fields.next()
        # By its name alone: the replacement of `+ x` equals its argument, which must be seen.
        if names is None or names.next() != _REPLACEMENT:
            yield field


def _short(name: str) -> str:
    """Return the name of a class without Spark's package; whole if it is of another one."""
    return name.removeprefix(_SPARK).removesuffix("$")


def _is_known(name: str) -> bool:
    package, _, short = name.rpartition(".")
    is_node = package in _NODE_PACKAGES and short in NODES
    return is_node or (package in _EXPRESSION_PACKAGES and short in EXPRESSIONS)


def _name_of(value: JavaObject) -> str:
    return _short(value.getClass().getName())
