"""Random hostile rule files and streams files.

A text is drawn from a grammar or is a file of this repository. Then whole clauses, single tokens or bytes are
damaged. Bombs are short texts that grow: by nesting, by repetition, or by loops that multiply when unrolled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from tests.property.documented_grammar import draw_rule

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Text:
    """The bytes of a rule file (`is_rules`) or a streams file. `kind` says how it was made."""

    kind: str
    is_rules: bool
    data: bytes


# In a grammar each word in <> stands for one of the alternatives after its colon. The first alternative leads
# to an end, so that a long text can be closed. "|" is the character, \\n the end of a line.
GRAMMAR = (Path(__file__).parent / "rule_grammar.txt").read_text()
STREAMS_GRAMMAR = (Path(__file__).parent / "streams_grammar.txt").read_text()


@cache
def _alternatives(grammar: str) -> Mapping[str, tuple[tuple[str, ...], ...]]:
    """Return the alternatives of each word of `grammar` as pieces. A piece is a text or a ``<word>``."""
    found = {}
    for word, lines in re.findall(r"^<(\w+)>:(.*(?:\n +\|.*)*)", grammar, re.MULTILINE):
        choices = re.sub(r"\n +\|", " |", lines).replace('"|"', "\0").split("|")
        is_yaml = grammar is STREAMS_GRAMMAR
        texts = [
            (choice[1:] if is_yaml else choice.strip()).replace("\0", "|").replace("\\n", "\n")
            for choice in choices
        ]
        if is_yaml:
            texts = [text.removesuffix(" ") for text in texts]
        found[word] = tuple(tuple(re.split(r"(<[a-z_]+>)", text)) for text in texts)
    return found


def expand(grammar: str, random: Random, budget: int = 60) -> str:
    """Return a text of `grammar`. After `budget` choices every word becomes its first alternative."""
    alternatives = _alternatives(grammar)
    left = budget
    out: list[str] = []
    stack = ["<file>"]
    while stack:
        piece = stack.pop()
        if piece.startswith("<") and piece[1:-1] in alternatives:
            left -= 1
            choices = alternatives[piece[1:-1]]
            stack.extend(reversed(random.choice(choices) if left > 0 else choices[0]))
        else:
            out.append(piece)
    return "".join(out)


@cache
def seeds(*, rules: bool) -> tuple[str, ...]:
    """Return the rule texts or YAML texts of the library, the documentation and the golden files."""
    suffixes = (".cep",) if rules else (".yaml",)
    folders = ("rules", "tests/golden/errors", "scenarios")
    files = [path for folder in folders for path in (_ROOT / folder).rglob("*") if path.suffix in suffixes]
    texts = [path.read_text() for path in sorted(files)]
    language = "cep" if rules else "yaml"
    for page in [_ROOT / "README.md", *sorted((_ROOT / "docs").rglob("*.md"))]:
        texts += re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return tuple(text for text in texts if len(text) < 20_000)


_PIECE = re.compile(r"\s+|\w+|->>|->|.", re.DOTALL)
_CLAUSE = re.compile(
    r"(?=\b(?:RULE|FROM|PARTITION|PATTERN|WITHIN|LET|DEFINE|MEASURES|MATCH|AFTER|TITLE|TAGS|SEVERITY)\b)"
)
# fmt: off
_ODD = (
    *(
        "'",
        "`",
        '"',
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        ",",
        ".",
        "!",
        "?",
        "*",
        "+",
        "|",
        "&",
        "-",
        "->",
        "->>",
        "<",
    ),
    *(
        "--",
        "/*",
        "||",
        ";",
        ":",
        "\\",
        "\n",
        "\r",
        "\t",
        "\0",
        "\x1b[31m",
        "\x85",
        "\u2028",
        "\u202e",
        "\ufeff",
    ),
    *(
        "\u00a0",
        "\u017f",
        "İ",
        "ﬁ",
        "٣",
        "²",
        "\U0001d7d9",
        "e\u0301",
        "日本",
        "\U0001f600",
        "\ud800",
        "RULE",
        "NULL",
        "1e999",
    ),
    *(
        "0" * 50,
        "9" * 19,
        "9" * 400,
        "x" * 5000,
        "1.5.5",
        ".5",
        "5.",
        "1e",
        "-9223372036854775808",
        "<<",
        "&a",
        "*a",
    ),
    *("!!", "? ", "- ", ": ", "#", "%", "@", "~", "\n\n", "    ", "---\n", "...\n"),
)
# fmt: on
_ODD_BYTES = (b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r\n")


def damage_tokens(text: str, pool: tuple[str, ...], random: Random) -> str:
    """Return `text` with a few tokens dropped, doubled, swapped, wrapped, or replaced, also by odd ones."""
    pieces = _PIECE.findall(text)
    for _ in range(random.randint(1, 5)):
        if not pieces:
            break
        at = random.randrange(len(pieces))
        other = random.randrange(len(pieces))
        match random.randrange(8):
            case 0:
                del pieces[at]
            case 1:
                pieces.insert(at, pieces[at])
            case 2:
                pieces[at], pieces[other] = pieces[other], pieces[at]
            case 3:
                pieces[at] = random.choice(_ODD)
            case 4:
                pieces.insert(at, random.choice(_ODD))
            case 5:
                pieces[at] = random.choice(_PIECE.findall(random.choice(pool)) or [""])
            case 6:
                n = random.choice((2, 10, 63, 65, 500))
                opening, closing = random.choice(
                    (("(", ")"), ("NOT ", ""), ("-", ""), ("!", ""), ("[", "]"), ("ABS(", ")"))
                )
                pieces[at] = opening * n + pieces[at] + closing * n
            case _:
                low, high = sorted((at, other))
                pieces[at:at] = pieces[low : min(high, low + 200)]
    return "".join(pieces)


def move_clauses(text: str, pool: tuple[str, ...], random: Random) -> str:
    """Return `text` with a clause dropped, doubled, moved, or taken from another text."""
    clauses = _CLAUSE.split(text)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(clauses))
        match random.randrange(4):
            case 0 if len(clauses) > 1:
                del clauses[at]
            case 1:
                clauses.insert(random.randrange(len(clauses) + 1), clauses[at])
            case 2:
                clauses.insert(random.randrange(len(clauses)), clauses.pop(at))
            case _:
                clauses.insert(at, random.choice(_CLAUSE.split(random.choice(pool))))
    return "".join(clauses)


def damage_bytes(data: bytes, random: Random) -> bytes:
    """Return `data` with bits flipped, bytes inserted, or the end cut off."""
    damaged = bytearray(data)
    for _ in range(random.randint(1, 6)):
        at = random.randrange(len(damaged) + 1)
        match random.randrange(7):
            case 0 if at < len(damaged):
                damaged[at] ^= 1 << random.randrange(8)
            case 1:
                damaged[at:at] = random.randbytes(random.randint(1, 4))
            case 2:
                del damaged[at:]
            case 3:
                del damaged[:at]
            case 4:
                damaged[at:at] = random.choice(
                    (b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r\n")
                )
            case 5:
                damaged = bytearray(
                    bytes(damaged).replace(b"\n", random.choice((b"\r\n", b"\r", b"\t", b"")))
                )
            case _:
                damaged[:0] = random.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\0\0\0", b"\x1f\x8b"))
    return bytes(damaged)


# ---------------------------------------------------------------- bombs

_HEAD = "RULE r FROM payments PARTITION BY card "


def _rule(pattern: str = "a -> b", definition: str = "", measures: str = "") -> str:
    define = f" DEFINE {definition}" if definition else ""
    report = f" MEASURES {measures}" if measures else ""
    return f"{_HEAD}PATTERN {pattern} WITHIN 1 HOUR{define}{report}\n"


def _nest(n: int, opening: str, core: str, closing: str) -> str:
    return opening * n + core + closing * n


def _named(n: int, form: str, joint: str) -> str:
    return joint.join(form.replace("@", str(number)) for number in range(n))


BOMBS: Mapping[str, Callable[[int], str]] = {
    "steps": lambda n: _rule("a " * n),
    "arrows": lambda n: _rule("a" + " -> a" * n),
    "joints": lambda n: _rule("->" * n),
    "optional": lambda n: _rule("a" + " b?" * n),
    "optional arrows": lambda n: _rule("a" + " ->> b?" * n + " -> c"),
    "distinct optional": lambda n: _rule("a" + _named(n, " -> v@?", "")),
    "branches": lambda n: _rule(_named(n, "v@", " | ")),
    "any order": lambda n: _rule(" & ".join("a" * n)),
    "any order of different": lambda n: _rule(_named(n, "v@", " & ")),
    "any order in any order": lambda n: _rule(_nest(n, "PERMUTE(a, ", "b", ")")),
    "any order of optional": lambda n: _rule("x PERMUTE(" + _named(n, "v@?", ", ") + ")"),
    "any order in a row": lambda n: _rule("(a & b & c) " * n),
    "any order of loops": lambda n: _rule("x PERMUTE(" + _named(n, "(v@->+ | w@)", ", ") + ")"),
    "absent branches": lambda n: _rule("a -> !(" + _named(n, "v@", " | ") + ") -> b"),
    "branches in a row": lambda n: _rule("(a | b | c) " * n),
    "optional branches": lambda n: _rule("x " + "(a? | b? | c?) " * n),
    "absences": lambda n: _rule("a" + " -> !b" * n + " -> c"),
    "absences in branches": lambda n: _rule("a " + _named(n, "(c? -> !v@ | d?)", " -> ") + " -> b"),
    "loops in loops": lambda n: _rule(_nest(n, "(", "a", ")+")),
    "hollow loops": lambda n: _rule("a " + _nest(n, "(b? ", "c?", ")*")),
    "hollow loops in a row": lambda n: _rule("a " + "(b? c?)* " * n),
    "counted": lambda n: _rule(f"a{{1,{n}}}"),
    "counted arrows": lambda n: _rule(f"a->>{{{n}}} b"),
    "counted in counted": lambda n: _rule(f"(((a{{{n}}}){{{n}}}){{{n}}}){{{n}}}"),
    "counted deep": lambda n: _rule(_nest(min(n, 60), "(", "a", "{999999999999999999}") + ")" * 0),
    "counted deep groups": lambda n: _rule("(" * min(n, 60) + "a" + "){999999999999999999}" * min(n, 60)),
    "counted optional": lambda n: _rule(f"a b{{0,{n}}} c"),
    "counted hollow": lambda n: _rule(f"a (b? | c?){{{n}}} d"),
    "groups": lambda n: _rule(_nest(n, "(", "a", ")")),
    "open groups": lambda n: _rule("(" * n),
    "closed groups": lambda n: _rule(")" * n),
    "braces": lambda n: _rule("a" + "{" * n),
    "not": lambda n: _rule(definition="a AS " + "NOT " * n + "approved"),
    "minus": lambda n: _rule(definition="a AS " + "-" * (2 * n) + " 1 > 0"),
    "spaced minus": lambda n: _rule(definition="a AS " + "- " * n + "items > 0"),
    "sum": lambda n: _rule(definition="a AS items" + " + items" * n + " > 0"),
    "product": lambda n: _rule(definition="a AS items" + " * 2" * n + " > 0"),
    "and": lambda n: _rule(definition="a AS " + " AND ".join(["items > 1"] * n)),
    "different and": lambda n: _rule(definition="b AS " + _named(n, "items > a.items + @", " AND ")),
    "or": lambda n: _rule(definition="a AS " + _named(n, "items = @", " OR ")),
    "is": lambda n: _rule(definition="a AS approved" + " IS TRUE" * n),
    "is not": lambda n: _rule(definition="b AS (a.approved" + " IS NOT TRUE" * n + ")"),
    "parentheses": lambda n: _rule(definition="a AS " + _nest(n, "(", "items", ")") + " > 0"),
    "calls": lambda n: _rule(definition="a AS " + _nest(n, "ABS(", "items", ")") + " > 0"),
    "coalesce": lambda n: _rule(definition="a AS COALESCE(" + _named(n, "items", ", ") + ") > 0"),
    "least": lambda n: _rule(definition="b AS LEAST(" + _named(n, "a.items + @", ", ") + ") > items"),
    "list": lambda n: _rule(definition="a AS items IN (" + _named(n, "@", ", ") + ")"),
    "text list": lambda n: _rule(definition="a AS country IN (" + _named(n, "'t@'", ", ") + ")"),
    "correlated list": lambda n: _rule(
        definition="b AS (" + " + ".join(["a.items"] * min(n, 90)) + ") IN (" + _named(n, "@", ", ") + ")"
    ),
    "between": lambda n: _rule(
        definition="a AS " + _nest(n, "CASE WHEN ", "items", " BETWEEN 1 AND 2 THEN 1 END") + " > 0"
    ),
    "correlated between": lambda n: _rule(
        definition="b AS " + _nest(n, "CASE WHEN ", "a.items", " BETWEEN 1 AND 2 THEN 1 END") + " > 0"
    ),
    "cases": lambda n: _rule(
        definition="a AS " + _nest(n, "CASE ", "items", " WHEN 1 THEN 1 WHEN 2 THEN 2 END") + " > 0"
    ),
    "wide case": lambda n: _rule(
        definition="b AS CASE a.items " + _named(n, "WHEN @ THEN 1", " ") + " END = 1"
    ),
    "last": lambda n: _rule(definition=f"b AS items > LAST(a.items, {n})"),
    "first": lambda n: _rule(definition=f"b AS items > FIRST(a.items, {n})"),
    "aggregates": lambda n: _rule("a+ b", measures=_named(n, "SUM(a.items + @) AS m@", ", ")),
    "windows": lambda n: _rule(
        definition="a AS " + _named(n, "SUM(items + @) OVER LAST 1 HOUR > @", " AND ")
    ),
    "equal windows": lambda n: _rule(definition="a AS " + " + ".join(["AVG(items) OVER ALL"] * n) + " > 0"),
    "windows in windows": lambda n: _rule(
        definition="a AS " + _nest(n, "SUM(", "items", ") OVER LAST 1 HOUR") + " > 0"
    ),
    "filters in filters": lambda n: _rule(
        definition="a AS " + _nest(n, "COUNT(*) FILTER (WHERE ", "approved", ") OVER ALL") + " > 0"
    ),
    "open frames": lambda n: _rule(definition="a AS COUNT(*) OVER " + "(" * n),
    "lets": lambda n: _rule("a -> b LET " + _named(n, "v@ = items + @", ", ")),
    "lets of lets": lambda n: _rule(
        "a -> b LET v0 = items" + "".join(f", v{i + 1} = v{i} + v{i}" for i in range(min(n, 500))),
        f"b AS v{min(n, 500)} > a.v{min(n, 500)}",
    ),
    "measures": lambda n: _rule(measures=_named(n, "b.items AS m@", ", ")),
    "equal measures": lambda n: _rule(measures=_named(n, "b.items AS m", ", ")),
    "definitions": lambda n: _rule(_named(n, "v@", " -> "), _named(n, "v@ AS items = @", ", ")),
    "unknown columns": lambda n: _rule(definition="a AS " + _named(n, "column@ > 0", " AND ")),
    "unknown definitions": lambda n: _rule(definition=_named(n, "v@ AS TRUE", ", ")),
    "unknown functions": lambda n: _rule(definition="a AS " + _named(n, "COUN@(items) > 0", " AND ")),
    "key": lambda n: f"RULE r FROM payments PARTITION BY {_named(n, 'card', ', ')} PATTERN a",
    "unknown key": lambda n: f"RULE r FROM payments PARTITION BY {_named(n, 'c@', ', ')} PATTERN a",
    "tags": lambda n: f"{_HEAD}PATTERN a TAGS {_named(n, 't@', ', ')}",
    "long name": lambda n: _rule("a" * n),
    "long column": lambda n: _rule(definition=f"a AS {'x' * n} > 0"),
    "long quoted name": lambda n: _rule("`" + "``" * n + "`"),
    "long function": lambda n: _rule(definition=f"a AS {'COUN' * n}(items) > 0"),
    "long word": lambda n: "x" * n,
    "long clause": lambda n: f"{_HEAD}PATTERN a {'WITHI' * n} 5",
    "long text": lambda n: _rule(definition=f"a AS country = '{'x' * n}'"),
    "long like": lambda n: _rule(definition=f"a AS country LIKE '{'%a' * n}'"),
    "backslashes": lambda n: _rule(definition="a AS country LIKE '" + "\\\\" * n + "\\'"),
    "quotes": lambda n: "'" * n,
    "backticks": lambda n: "`" * n,
    "open text": lambda n: _HEAD + "TITLE '" + "x" * n,
    "long number": lambda n: _rule(definition=f"a AS items > {'9' * n}"),
    "long fraction": lambda n: _rule(definition=f"a AS items > 0.{'9' * n}"),
    "long exponent": lambda n: _rule(definition=f"a AS items > 1e{'9' * n}"),
    "long bound": lambda n: _rule(f"a{{{'9' * n}}}"),
    "long window": lambda n: f"{_HEAD}PATTERN a WITHIN {'9' * n} WEEKS",
    "comment": lambda n: "--" + "x" * n + "\n" + _rule(),
    "comments": lambda n: "--\n" * n + _rule(),
    "open comment": lambda n: _rule() + "/*" * n,
    "lines": lambda n: "\n" * n + _rule(),
    "tabs": lambda n: "\t" * n + "x" + "\t" * n,
    "wide": lambda n: "日" * n,
    "combining": lambda n: _HEAD + "e" + "\u0301" * n,
    "bad characters": lambda n: _HEAD + "§" * n,
    "signs": lambda n: "RULE " + "-> " * n,
    "rules": lambda n: "".join(f"RULE r{i} FROM payments PARTITION BY card PATTERN a\n" for i in range(n)),
    "equal rules": lambda n: _rule() * n,
    "bad rules": lambda n: "RULE " * n,
    "bad clauses": lambda n: _HEAD + "PATTERN " * n,
    "clauses again": lambda n: _rule("a") + "WITHIN 1 s " * n,
    "rules without RULE": lambda n: _rule("a") + "FROM x PARTITION BY y PATTERN a " * n,
    "reserved words": lambda n: _rule("from -> " * n + "a"),
    "foreign words": lambda n: _rule("every " + "followed by " * n + "a"),
    "foreign signs": lambda n: _rule("a " + "=> b " * n),
    "undefined": lambda n: _rule(_named(n, "v@", " -> "), "v1 AS TRUE"),
    "half defined": lambda n: _rule(
        _named(n, "variable@ -> another@", " -> "), _named(n, "another@ AS items = 1", ", ")
    ),
    "guarded loops": lambda n: _rule("a" + " -> !b -> c->{2}" * n),
    "guarded deep loops": lambda n: _rule("a -> " + "(a -> !b -> " * n + "c->{2}" + ")->{2}" * n),
    "absences that begin branches": lambda n: _rule("a" + " -> (b | !c)" * n),
    "spans": lambda n: _rule("a") + "SUPPRESS FOR " + "1 h " * n,
    "long span": lambda n: _rule("a") + "SUPPRESS FOR " + "1h" * n,
    "long amount": lambda n: _rule("a") + f"SUPPRESS FOR 1.{'0' * n}1 h",
    "intervals": lambda n: _rule("a", "a AS " + "2 * (" * n + "1 s" + ")" * n + " > 1 s"),
    "distances": lambda n: _rule("a", "a AS " + "DISTANCE_KM(1, 2, 3, " * n + "4" + ")" * n + " > 1"),
    "arrows of comments": lambda n: _rule("a " + "--> b\n" * n),
    "bad streams": lambda n: "".join(
        f"RULE r{i} FROM paymets PARTITION BY card PATTERN a\n" for i in range(n)
    ),
    "many words": lambda n: "".join(
        _rule("a b", _named(64, f"a{i} AS items = @", " OR ")) for i in range(n // 500)
    ),
}
"""Name -> rule text of size n."""

_STREAM = "streams:\n  s:\n    event_time: ts\n    schema: {ts: timestamp"

STREAMS_BOMBS: Mapping[str, Callable[[int], str]] = {
    "lists": lambda n: "streams: " + "[" * n,
    "closed lists": lambda n: "streams: " + _nest(n, "[", "", "]"),
    "mappings": lambda n: "streams: " + "{a: " * n,
    "indented": lambda n: "".join(" " * i + "a:\n" for i in range(min(n, 400))),
    "dashes": lambda n: "- " * n,
    "keys": lambda n: "? " * n,
    "aliases": lambda n: "a: &a [x]\n" + "".join(f"b{i}: &b{i} [*a, *a]\n" for i in range(n)),
    "laughs": lambda n: "a: &a [x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nstreams: *c\n" * n,
    "merge": lambda n: "a: &a {x: y}\nstreams:\n  <<: *a\n" + "  <<: *a\n" * n,
    "tags": lambda n: "streams: " + "!!python/object/apply:os.system " * n + "x",
    "columns": lambda n: _STREAM + "".join(f", c{i}: int" for i in range(n)) + "}\n",
    "bad columns": lambda n: _STREAM + "".join(f", c{i}: integr" for i in range(n)) + "}\n",
    "equal columns": lambda n: _STREAM + ", c: int" * n + "}\n",
    "tie breakers": lambda n: _STREAM + "}\n    tie_break: [" + "ts, " * n + "]\n",
    "bad tie breakers": lambda n: _STREAM + "}\n    tie_break: [" + _named(n, "x@", ", ") + "]\n",
    "streams": lambda n: (
        "streams:\n" + "".join(f"  s{i}: {{event_time: ts, schema: {{ts: timestamp}}}}\n" for i in range(n))
    ),
    "bad streams": lambda n: "streams:\n" + "".join(f"  s{i}: {{event_tim: ts}}\n" for i in range(n)),
    "settings": lambda n: "".join(f"stream{i}: x\n" for i in range(n)),
    "long scalar": lambda n: "streams: " + "x" * n,
    "long key": lambda n: "x" * n + ": 1",
    "long quoted": lambda n: 'streams: "' + "\\\n" * n + '"',
    "long type": lambda n: _STREAM + f", a: {'int' * n}}}\n",
    "long setting": lambda n: "streams: {s: {" + "event_tim" * n + ": x}}",
    "open quote": lambda n: "streams: '" + "x\n" * n,
    "documents": lambda n: "---\n" * n,
    "comments": lambda n: "# x\n" * n + "streams:\n",
    "blank lines": lambda n: "\n" * n,
    "tabs": lambda n: "\t" * n + "streams:",
    "formats": lambda n: _STREAM + ', a: {type: timestamp, format: "' + "%Y%m%d" * n + '"}}\n',
    "format signs": lambda n: _STREAM + ', a: {type: timestamp, format: "%Y%m%d' + "(.*" * n + '"}}\n',
    "bad zones": lambda n: _STREAM + _named(n, ", z@: {type: timestamp, zone: Europe/Berln@}", "") + "}\n",
    "places": lambda n: _STREAM + ", a: {type: int, field: " + "a." * n + "b}}\n",
    "quoted places": lambda n: _STREAM + ", a: {type: int, field: '" + "`a``" * n + "'}}\n",
    "ddl": lambda n: "streams: {s: {event_time: ts, schema: '" + "ts timestamp, " * n + "a int'}}\n",
    "variables": lambda n: _STREAM + "}\n    lateness: " + "${" * n + "}\n",
    "duration": lambda n: _STREAM + "}\n    lateness: " + "9" * n + " weeks\n",
    "literal": lambda n: "streams: |\n" + "  x\n" * n,
    "directives": lambda n: "%TAG ! tag:x,2000:\n" * n + "---\nstreams:\n",
    "anchors": lambda n: "&a " * n + "x",
}
"""Name -> streams file of size n."""


# ---------------------------------------------------------------- all


def draw(random: Random) -> Text:
    """Return a text of a random kind."""
    is_rules = random.random() < 0.7
    pool = seeds(rules=is_rules)
    text = random.choice(pool)
    if is_rules and random.random() < 0.2:
        text = draw_rule(random, random.choice((3, 6, 10, 30)))
    elif random.random() < 0.4:
        text = expand(GRAMMAR if is_rules else STREAMS_GRAMMAR, random, random.choice((20, 60, 200)))
    kinds = ("grammar", "documented", "tokens", "clauses", "bytes", "noise", "bomb")
    (kind,) = random.choices(kinds, (20, 15 * is_rules, 30, 10, 20, 5, 3))
    match kind:
        case "documented":
            text = draw_rule(random, random.choice((3, 6, 10, 30, 80)))
        case "grammar":
            text = expand(GRAMMAR if is_rules else STREAMS_GRAMMAR, random, random.choice((20, 60, 200)))
        case "tokens":
            text = damage_tokens(text, pool, random)
        case "clauses":
            text = move_clauses(text, pool, random)
        case "bytes":
            return Text(kind, is_rules, damage_bytes(text.encode(), random))
        case "noise":
            return Text(kind, is_rules, random.randbytes(int(2 ** random.uniform(0, 12))))
        case _:
            bombs = BOMBS if is_rules else STREAMS_BOMBS
            name = random.choice(sorted(bombs))
            size = int(2 ** random.uniform(0, 17))
            return Text(f"bomb: {name}", is_rules, _encoded(bombs[name](size)))
    return Text(kind, is_rules, _encoded(text))


def every_bomb(sizes: tuple[int, ...]) -> Iterator[Text]:
    """Yield each bomb in each of `sizes`."""
    for is_rules, bombs in ((True, BOMBS), (False, STREAMS_BOMBS)):
        for name, bomb in bombs.items():
            for size in sizes:
                yield Text(f"bomb: {name} {size}", is_rules, _encoded(bomb(size)))


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")
