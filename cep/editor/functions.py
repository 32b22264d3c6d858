"""The functions of the language for people: how each is called, what it gives, and what that means."""

from __future__ import annotations

from dataclasses import dataclass

from cep.compiler.typing.functions import SYNONYMS


@dataclass(frozen=True, slots=True)
class FunctionHelp:
    """A function. `call` is how it is written, `gives` the type of its value."""

    call: str
    gives: str
    meaning: str

    @property
    def signature(self) -> str:
        """The call with the type of its value."""
        return f"{self.call} → {self.gives}"


# fmt: off
_VALUES = (
    ("ABS(x)", "the type of x", "x without its sign; also of a duration"),
    ("CEIL(x)", "BIGINT", "the smallest whole number that is not below x"),
    ("FLOOR(x)", "BIGINT", "the greatest whole number that is not above x"),
    ("ROUND(x, n)", "the type of x", "x rounded to n places, half away from zero; n is from 0 to 15"),
    ("DOUBLE(x)", "DOUBLE", "x as a DOUBLE"),
    ("SQRT(x)", "DOUBLE", "the square root; NaN of a negative number"),
    ("EXP(x)", "DOUBLE", "e to the power of x"),
    ("SIGN(x)", "DOUBLE", "-1, 0 or 1"),
    ("LN(x)", "DOUBLE", "the natural logarithm; NULL unless x is positive"),
    ("LOG2(x)", "DOUBLE", "the logarithm to base 2; NULL unless x is positive"),
    ("LOG10(x)", "DOUBLE", "the logarithm to base 10; NULL unless x is positive"),
    ("POWER(x, y)", "DOUBLE", "x to the power of y"),
    ("SIN(x)", "DOUBLE", "the sine of an angle in radians"),
    ("COS(x)", "DOUBLE", "the cosine of an angle in radians"),
    ("TAN(x)", "DOUBLE", "the tangent of an angle in radians"),
    ("ASIN(x)", "DOUBLE", "the arc sine in radians; NaN beyond -1 and 1"),
    ("ACOS(x)", "DOUBLE", "the arc cosine in radians; NaN beyond -1 and 1"),
    ("ATAN(x)", "DOUBLE", "the arc tangent in radians"),
    ("ATAN2(y, x)", "DOUBLE", "the angle of the point x, y in radians"),
    ("RADIANS(x)", "DOUBLE", "an angle in degrees as radians"),
    ("DEGREES(x)", "DOUBLE", "an angle in radians as degrees"),
    ("PI()", "DOUBLE", "the number pi"),
    ("DISTANCE_KM(lat, lon, lat, lon)", "DOUBLE", "the distance of two places in kilometres"),
    ("MOD(x, y)", "the type of x and y", "the remainder, as x % y; NULL if y is 0"),
    ("ISNAN(x)", "BOOLEAN", "whether x is NaN; FALSE of NULL"),
    ("COALESCE(x, ...)", "the type of its values", "the first value that is not NULL"),
    ("NULLIF(x, y)", "the type of x", "x, or NULL if x equals y"),
    ("IF(c, x, y)", "the type of x and y", "x if c is TRUE, otherwise y"),
    ("GREATEST(x, y, ...)", "the type of its values", "the greatest value; NULL values are ignored"),
    ("LEAST(x, y, ...)", "the type of its values", "the smallest value; NULL values are ignored"),
    ("PREV(x, n)", "the type of x", "x of the n-th previous event of the key, taken or not"),
    ("LENGTH(s)", "BIGINT", "the number of characters"),
    ("LOWER(s)", "STRING", "s in lower case"),
    ("UPPER(s)", "STRING", "s in upper case"),
    ("REVERSE(s)", "STRING", "s from its end to its start"),
    ("TRIM(s)", "STRING", "s without blanks at both ends"),
    ("LTRIM(s)", "STRING", "s without blanks at its start"),
    ("RTRIM(s)", "STRING", "s without blanks at its end"),
    ("SUBSTRING(s, p, n)", "STRING", "n characters from place p, from 1, or from -1 back from the end"),
    ("LEFT(s, n)", "STRING", "the first n characters"),
    ("RIGHT(s, n)", "STRING", "the last n characters"),
    ("CONCAT(s, t, ...)", "STRING", "the texts one after the other, as s || t"),
    ("REPLACE(s, t, u)", "STRING", "s with u in place of each t"),
    ("SPLIT_PART(s, t, n)", "STRING", "part n of s, split at each t; n is from 1, or from -1 back"),
    ("INSTR(s, t)", "BIGINT", "where t starts in s, from 1; 0 if it is nowhere"),
    ("LOCATE(t, s)", "BIGINT", "where t starts in s, from 1; 0 if it is nowhere"),
    ("CONTAINS(s, t)", "BOOLEAN", "whether t is somewhere in s"),
    ("STARTSWITH(s, t)", "BOOLEAN", "whether s starts with t"),
    ("ENDSWITH(s, t)", "BOOLEAN", "whether s ends with t"),
    ("YEAR(t)", "BIGINT", "the year of a time in UTC"),
    ("QUARTER(t)", "BIGINT", "the quarter of a time in UTC, from 1 to 4"),
    ("MONTH(t)", "BIGINT", "the month of a time in UTC, from 1 to 12"),
    ("DAY(t)", "BIGINT", "the day of the month in UTC"),
    ("DAYOFYEAR(t)", "BIGINT", "the day of the year in UTC, from 1"),
    ("DAYOFWEEK(t)", "BIGINT", "the day of the week in UTC; 1 is Sunday"),
    ("WEEKDAY(t)", "BIGINT", "the day of the week in UTC; 0 is Monday"),
    ("HOUR(t)", "BIGINT", "the hour of a time in UTC, from 0 to 23"),
    ("MINUTE(t)", "BIGINT", "the minute of a time in UTC"),
    ("SECOND(t)", "BIGINT", "the second of a time in UTC"),
    ("DATE_TRUNC('unit', t)", "TIMESTAMP", "the start of the year, month, day, hour, ... of a time in UTC"),
    ("FROM_UTC_TIMESTAMP(t, 'zone')", "TIMESTAMP", "what the clocks of a time zone show at t"),
    ("TO_UTC_TIMESTAMP(t, 'zone')", "TIMESTAMP", "the first time at which the clocks of a time zone show t"),
    ("UNIX_SECONDS(t)", "BIGINT", "seconds since 1970, rounded down"),
    ("UNIX_MILLIS(t)", "BIGINT", "milliseconds since 1970, rounded down"),
    ("UNIX_MICROS(t)", "BIGINT", "microseconds since 1970"),
    ("TIMESTAMP_SECONDS(n)", "TIMESTAMP", "the time that is n seconds after 1970"),
    ("TIMESTAMP_MILLIS(n)", "TIMESTAMP", "the time that is n milliseconds after 1970"),
    ("TIMESTAMP_MICROS(n)", "TIMESTAMP", "the time that is n microseconds after 1970"),
)
_AGGREGATES = (
    ("FIRST(v.x)", "the type of x", "x of the first event taken as v; FIRST(v.x, n): n after it"),
    ("LAST(v.x)", "the type of x", "x of the last event taken as v; LAST(v.x, n): n before it"),
    ("COUNT(v.*)", "BIGINT", "the number of events taken as v; COUNT(DISTINCT v.x) that of different values"),
    ("SUM(v.x)", "the type of x", "the sum over the events taken as v; NULL over none"),
    ("AVG(v.x)", "DOUBLE", "the mean over the events taken as v; NULL over none"),
    ("MIN(v.x)", "the type of x", "the smallest value among the events taken as v; NULL over none"),
    ("MAX(v.x)", "the type of x", "the greatest value among the events taken as v; NULL over none"),
    ("STDDEV(v.x)", "DOUBLE", "the deviation of a sample; NULL over fewer than two events"),
    ("ARRAY_AGG(v.x)", "a list", "the values of the events taken as v; only as a whole measure"),
)
_OF_WINDOWS = (
    ("SEEN(x)", "BOOLEAN", "whether this x is among those of the window: SEEN(x) OVER PREVIOUS 90 DAYS"),
    ("FIRST_VALUE(x)", "the type of x", "x of the first event of the window"),
    ("LAST_VALUE(x)", "the type of x", "x of the last event of the window"),
    ("LAG(x, n)", "the type of x", "x of the event n events ago, if it is in the window"),
    ("VARIANCE(x)", "DOUBLE", "the variance of a sample over the events of the window"),
    ("PERCENTILE(x, p)", "DOUBLE", "the value below which the part p of the values is; p is from 0 to 1"),
    ("MEDIAN(x)", "DOUBLE", "PERCENTILE(x, 0.5)"),
)
_CASTS = (
    ("CAST(x AS type)", "that type", "x as BIGINT, DOUBLE or STRING; NULL if it cannot be converted"),
    ("TRY_CAST(x AS type)", "that type", "the same as CAST"),
)
# fmt: on

HELP: dict[str, FunctionHelp] = {
    line[0].partition("(")[0]: FunctionHelp(*line) for line in (*_VALUES, *_AGGREGATES, *_OF_WINDOWS, *_CASTS)
}
"""Every function by its name in upper case."""

HELP |= {
    other: FunctionHelp(HELP[name].call, HELP[name].gives, f"another name of {name}: {HELP[name].meaning}")
    for other, name in SYNONYMS.items()
}
