"""What ARCHITECTURE.md promises and import contracts cannot see."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import grimp
import networkx as nx
import pytest

from cep.formats.registry import FORMATS, known_suffixes
from spark_runtime.sinks.registry import SINKS
from spark_runtime.sources.registry import SOURCES

ROOT = Path(__file__).parents[2]
CORE = [
    path
    for path in sorted((ROOT / "cep").rglob("*.py"))
    # `stored` has the machine's settings for compiled code: where it is kept, and what it depends on.
    if path.name != "__main__.py"
    and path != ROOT / "cep/jit/stored.py"
    and not {ROOT / "cep/commands", ROOT / "cep/spool"} & {*path.parents}
]
SURROUNDINGS = {"os", "platform", "random", "secrets", "socket", "tempfile", "time", "uuid"}


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return the nodes of a module: several tests visit those of all modules, which takes seconds."""
    return tuple(ast.walk(ast.parse(path.read_text())))


@pytest.fixture(scope="module", autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    nodes_of.cache_clear()


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_core_reads_no_clock_no_environment_and_no_random_source(path: Path) -> None:
    for node in nodes_of(path):
        match node:
            case ast.Import(names=names):
                assert not {name.name.split(".")[0] for name in names} & SURROUNDINGS
            case ast.ImportFrom(module=str(module)):
                assert module.split(".")[0] not in SURROUNDINGS
            case ast.Attribute(value=ast.Name(id="datetime" | "date"), attr="now" | "today" | "utcnow"):
                pytest.fail(f"line {node.lineno}: {ast.unparse(node)}")
            case ast.Attribute(attr="random" | "environ"):
                pytest.fail(f"line {node.lineno}: {ast.unparse(node)}")


@pytest.mark.parametrize("package", ["cep", "scenarios", "spark_runtime"])
def test_nothing_executes_or_unpickles_what_it_reads(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in nodes_of(path):
            match node:
                case ast.Call(func=ast.Name(id="eval" | "exec" | "__import__")):
                    pytest.fail(f"{path}:{node.lineno}: {ast.unparse(node)}")
                case ast.Import(names=names):
                    assert not {name.name for name in names} & {
                        "pickle",
                        "cloudpickle",
                        "marshal",
                        "shelve",
                    }, path


@pytest.mark.parametrize("package", ["cep", "scenarios", "spark_runtime"])
def test_eight_values_and_more_are_constructed_by_name(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in nodes_of(path):
            match node:
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args):
                    is_class = name[:1].isupper() and not name.isupper()
                    assert not (is_class and len(args) >= 8), f"{path}:{node.lineno}: {name}"


def test_the_floors_are_those_of_the_import_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["name"].startswith("Floors")]
    page = (ROOT / "ARCHITECTURE.md").read_text()
    floors = page.partition("## Floors")[2].split("```")[1].split("\n")[1:-1]
    # Parentheses are the contract's sign for a layer that may be missing.
    assert floors == [layer.replace("(", "").replace(")", "") for layer in layers]
    assert len(floors) <= 9


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = grimp.build_graph("cep", "scenarios", "spark_runtime", exclude_type_checking_imports=True)
    imports: nx.DiGraph[str] = nx.DiGraph()
    for module in graph.modules:
        imports.add_edges_from((module, other) for other in graph.find_modules_directly_imported_by(module))
    assert imports.number_of_edges() > 1_000
    assert [sorted(found) for found in nx.strongly_connected_components(imports) if len(found) > 1] == []


_PATH = re.compile(
    r"(?:cep|spark_runtime|tests|docs|tools|rules|scenarios)/[\w./-]*|[\w./-]+\.(?:py|md|lock|toml|yml)|Makefile"
)


def missing_paths(text: str) -> list[str]:
    """Return the paths in backticks that are missing, also below the folders that their paragraph names."""
    found = []
    for paragraph in re.split(r"\n\n|\n(?=\||- |\d+\. )", text):
        named = [name for name in re.findall(r"`([^`\s]+)`", paragraph) if _PATH.fullmatch(name)]
        paths = [Path(name) for name in named if (ROOT / name).exists()]
        folders = {folder for path in paths for folder in (path, *path.parents) if folder != Path()}
        found += [name for name in named if not any((ROOT / at / name).exists() for at in (Path(), *folders))]
    return found


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"])
def test_the_paths_that_pages_name_exist(page: str) -> None:
    missing = missing_paths((ROOT / page).read_text())
    # The README also names files of the reader.
    assert [name for name in missing if "/" in name or page != "README.md"] == []


def test_a_path_that_is_missing_is_found() -> None:
    text = "`cep/rules.py`, `Makefile`, `errors.py`\n| `cep/engine/` | `keys/gone.py`, `keys/key_slots.py` |"
    assert missing_paths(text) == ["cep/rules.py", "errors.py", "keys/gone.py"]


@pytest.mark.parametrize(
    "path", [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda path: path.name
)
def test_lines_of_pages_end_at_120_characters(path: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert [line for line in prose.splitlines() if len(line) > 120 and not line.startswith("|")] == []


def names_one_of(words: set[str], node: ast.expr) -> bool:
    """Say whether an expression is one of some words, a member of `Format`, or has one of these in it."""
    match node:
        case ast.Constant(value=str(text)):
            return text in words
        case ast.Attribute(value=ast.Name(id="Format")):
            return True
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            return any(names_one_of(words, item) for item in items)
    return False


def compared(node: ast.AST) -> list[ast.expr]:
    """Return what a node compares something with."""
    match node:
        case ast.Compare(
            left=left, ops=[ast.Eq() | ast.NotEq() | ast.Is() | ast.IsNot()], comparators=others
        ):
            return [left, *others]
        case ast.Compare(comparators=others):  # `"csv" in settings` asks for a setting
            return others
        case ast.Call(func=ast.Attribute(attr="endswith" | "startswith"), args=values):
            return values
        case ast.match_case(pattern=ast.MatchValue(value=value)):
            return [value]
    return []


def test_the_name_of_a_format_a_source_or_a_sink_is_compared_nowhere() -> None:
    """What depends on a format belongs into its own module, where nobody has to ask."""
    names = {*FORMATS.built_in, *SOURCES.built_in, *SINKS.built_in}
    words = {*names, *known_suffixes(), "jsonl", ".cep"}
    found = [
        f"{path.relative_to(ROOT)}: {ast.unparse(value)}"
        for package in ("cep", "scenarios", "spark_runtime")
        for path in sorted((ROOT / package).rglob("*.py"))
        for node in nodes_of(path)
        for value in compared(node)
        if names_one_of(words, value)
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    ["a == 'json'", "'csv' != a", "a in ('x', 'rate')", "a is Format.CSV", "a.endswith('.parquet')"],
)
def test_a_comparison_with_a_name_is_seen(code: str) -> None:
    words = {"json", "csv", "rate", ".parquet"}
    nodes = ast.walk(ast.parse(code))
    assert any(names_one_of(words, value) for node in nodes for value in compared(node))


def test_a_format_a_source_and_a_sink_are_named_in_their_registration_only() -> None:
    """A new one is a module and a line: nothing else has to know its module."""
    of_formats = re.compile(r"^cep\.formats\.(text\.)?(json_lines|csv_lines|parquet)$")
    system = re.compile(r"^spark_runtime\.connectors\.(\w+)\.")
    for path in [*(ROOT / "cep").rglob("*.py"), *(ROOT / "spark_runtime").rglob("*.py")]:
        room = path.parent.name
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                assert not of_formats.match(node.module), f"{path}:{node.lineno}"
                found = system.match(node.module)
                is_known = found is None or found[1] in {room, "message_logs"}
                # A static table is read from a file, whatever the streams are read from.
                is_static = path.name == "source_entry.py" and found is not None and found[1] == "files"
                assert is_known or is_static, f"{path}:{node.lineno}"


_OF_ROOT = "modules of the root are on floors of their own, which the contract lists one by one"

PARENT_AND_CHILD = {
    ("cep", "cep/commands"): "`python -m cep` is a module of the root",
    **{
        ("cep", f"cep/{child}"): _OF_ROOT
        for child in ("compiler", "formats", "language", "program", "profiles", "schema", "settings")
    },
    ("cep/compiler", "cep/compiler/analysis"): "`compile.py` calls the stages; they share `ir.py`",
    (
        "cep/compiler",
        "cep/compiler/automaton",
    ): "`compile.py` calls the stages; they share `limits.py`",
    (
        "cep/compiler",
        "cep/compiler/lowering",
    ): "`compile.py` calls the stages; `aggregates.py` writes registers",
    ("cep/formats", "cep/formats/text"): "`files.py` knows the built-in formats; formats share dead letters",
    ("cep/language", "cep/language/clauses"): "the parser reads clauses, and they read expressions",
}
"""A folder and one inside it that import each other, each with its reason."""


def test_no_two_folders_import_each_other() -> None:
    graph = grimp.build_graph("cep", "scenarios", "spark_runtime", exclude_type_checking_imports=True)

    def folder(module: str) -> Path:
        path = Path(*module.split("."))
        return path if (ROOT / path).is_dir() else path.parent

    pairs = {
        (folder(module), folder(other))
        for module in graph.modules
        for other in graph.find_modules_directly_imported_by(module)
    }
    mutual = {(one, other) for one, other in pairs if one < other and (other, one) in pairs}
    assert {(str(one), str(other)) for one, other in mutual} == set(PARENT_AND_CHILD)
    assert [child for parent, child in PARENT_AND_CHILD if Path(parent) not in Path(child).parents] == []


MOST_LINES, MOST_DEPTH = 60, 5
NESTING = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match)


def depth_of(node: ast.AST) -> int:
    """Return how deeply statements are nested; an `elif` is as deep as its `if`."""
    deepest = 0
    for name, value in ast.iter_fields(node):
        children = value if isinstance(value, list) else [value]
        is_elif = isinstance(node, ast.If) and name == "orelse" and len(children) == 1
        for child in children:
            if isinstance(child, ast.AST):
                nests = isinstance(child, NESTING) and not (is_elif and isinstance(child, ast.If))
                deepest = max(deepest, depth_of(child) + nests)
    return deepest


def code_lines(source: str, function: ast.FunctionDef) -> int:
    """Return the lines of a function without its docstring, comments and blank lines."""
    first, texts = function.body[0], set()
    if isinstance(first, ast.Expr) and ast.get_docstring(function) is not None:
        texts = set(range(first.lineno, (first.end_lineno or 0) + 1))
    lines = source.splitlines()
    numbers = set(range(function.lineno, (function.end_lineno or 0) + 1)) - texts
    code = [lines[number - 1].strip() for number in numbers]
    return sum(bool(line) and not line.startswith("#") for line in code)


def kernels_of(nodes: Iterable[ast.AST]) -> list[ast.FunctionDef]:
    """Return the kernels of a module and their parts."""
    marks = {"kernel", "inlined", "outlined"}
    return [
        node
        for node in nodes
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(mark, ast.Name) and mark.id in marks for mark in node.decorator_list)
    ]


def test_kernels_and_their_parts_are_short_and_flat() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {kernel.name}": (code_lines(source, kernel), depth_of(kernel))
        for package in ("cep", "spark_runtime")
        for path in sorted((ROOT / package).rglob("*.py"))
        for source in [path.read_text()]
        for kernel in kernels_of(nodes_of(path))
    }
    assert len(found) > 250
    assert {name: of for name, of in found.items() if of[0] > MOST_LINES or of[1] > MOST_DEPTH} == {}


def test_lines_and_depth_of_a_kernel_are_counted() -> None:
    source = """
@kernel
def sort(values: I64) -> None:
    \"\"\"Sort.

    In place.
    \"\"\"
    # a comment

    for value in values:
        if value > 1:
            pass
        elif value > 0:
            while True:
                pass
"""
    [kernel] = kernels_of(ast.walk(ast.parse(source)))
    assert (code_lines(source, kernel), depth_of(kernel)) == (7, 3)
