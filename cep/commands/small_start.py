"""Makes the start of a small run cheap: half of its time would go into things that the run does not use."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import gc
import importlib
import os
import re
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any, cast

from cep.commands.kept_memory import keep_memory

_UNUSED = frozenset(("dateutil", "pandas"))
"""Packages that Arrow imports, where they are installed, just to ask whether a value is one of theirs.

That is a third of the time a small file takes. Any other importer, such as a plug-in or boto3, gets them.
"""

_SPARED = frozenset(("cep", "spark_runtime"))
"""Packages whose calls of Arrow do without `_UNUSED`."""

_BETWEEN = frozenset(("_frozen_importlib", "_frozen_importlib_external", "importlib", "pyarrow"))
"""Packages that import for their caller."""

_COLLECT_AFTER = 500_000
"""Objects after which Python searches for cycles of garbage, not 700: imports create 200,000 that stay.

A search among 100,000 takes 20 ms, a twelfth of a small run.
"""


def _is_masked(array: Any) -> bool:
    mask = getattr(array, "_mask", None)  # as numpy.ma.is_masked asks
    return mask is not None and bool(mask.any())


class _OfMaskedArray(type):
    def __instancecheck__(cls, value: object) -> bool:
        core = sys.modules.get("numpy.ma.core")  # without it there is no masked array
        return core is not None and isinstance(value, core.MaskedArray)


_STAND_INS: dict[str, dict[str, Any]] = {
    "numpy._core._add_newdocs": {},
    "numpy._core._add_newdocs_scalars": {},
    "numpy.typing": {"NDArray": list},
    "numpy.ma": {"MaskedArray": _OfMaskedArray("MaskedArray", (), {}), "is_masked": _is_masked},
    "pyarrow.vendored.docscrape": {"NumpyDocString": lambda text: {"Parameters": ()}},
    "pyparsing.helpers": {"_builtin_exprs": []},
    "pyparsing.common": {"pyparsing_common": None, "_builtin_exprs": []},
    "pyparsing.testing": {"pyparsing_test": None},
}
"""The only parts that packages use of modules that take long to load, with the values that these parts have
if nothing else uses the modules.

None: the real object, which is loaded when one of its attributes is used.

Arrow asks whether an array is masked, and reads the docstrings of its functions to write others. numpy adds
docstrings, and only annotations use its types of arrays. pyparsing offers its help for tests, which loads
`unittest`, and expressions and helpers of many grammars, for which it loads the entities of HTML.
"""


class _Later:
    """Stands for what `get` returns, which is called when an attribute is asked for.

    Its own attributes are such objects too, as long as nobody asks them for theirs.
    """

    def __init__(self, get: Callable[[], Any]) -> None:
        self._get = get

    def __getattr__(self, name: str) -> Any:
        return getattr(self._get(), name)


def _ir_types() -> dict[str, Any]:
    def named(name: str) -> Any:
        return _Later(lambda: getattr(importlib.import_module("llvmlite.ir"), name))

    return {"__getattr__": named}


def _arrow_with_one_function() -> dict[str, Any]:
    of_c = vars(importlib.import_module("pyarrow._compute"))
    all_functions = of_c["function_registry"]()
    second = ["utf8_zero_fill"]  # Arrow 21 and later have a second name for this one
    named = [name for name in second if name in all_functions.list_functions()]
    registry = SimpleNamespace(list_functions=lambda: named, get_function=all_functions.get_function)
    return {**of_c, "function_registry": lambda: registry}


def _wrap_functions_when_used(compute: ModuleType) -> None:
    registry = importlib.import_module("pyarrow._compute").function_registry

    def function(name: str) -> Any:
        try:
            found = registry().get_function({"and_": "and", "or_": "or"}.get(name, name))
        except KeyError:
            raise AttributeError(name) from None
        vars(compute)[name] = wrapped = vars(compute)["_wrap_function"](name, found)
        return wrapped

    vars(compute).update(function_registry=registry, __getattr__=function)


_IMPORTED_BY: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "llvmlite.binding.typeref": ("llvmlite.ir", _ir_types),
    "numpy.linalg._linalg": ("numpy._typing", lambda: {"NDArray": list}),
    "pyarrow.compute": ("pyarrow._compute", _arrow_with_one_function),
    "yaml.reader": ("re", lambda: {"compile": lambda text: _Later(lambda: re.compile(text))}),
}
"""Modules, what each of them alone imports differently, and the contents of that module for it.

llvmlite has types of its own compiler, which takes long to load, in a table that no kernel reads. numpy has a
type of arrays in annotations. Arrow wraps each of 300 functions, of which a run calls ten. PyYAML compiles a
long expression for its reader that is written in Python.
"""


def _show_to_arrow(pandas: ModuleType) -> None:
    """Make Arrow search for pandas again if it has not found it before."""
    shim = getattr(sys.modules.get("pyarrow.lib"), "_pandas_api", None)
    lock = getattr(shim, "_lock", None)
    if lock is not None and lock.locked():  # Arrow itself imports pandas
        return
    with contextlib.suppress(ImportError):  # a version of pandas that Arrow does not use
        getattr(shim, "pd", None)


_AFTER_IMPORT: dict[str, Callable[[ModuleType], None]] = {
    "pandas": _show_to_arrow,
    "pyarrow.compute": _wrap_functions_when_used,
}


class _Loaded:
    """Loads one of `_IMPORTED_BY` or `_AFTER_IMPORT`.

    Its base class would be `importlib.abc.Loader`, whose import loads `tempfile` and `shutil`.
    """

    def __init__(self, spec: ModuleSpec) -> None:
        self._loader: Any = spec.loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module as usual."""
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, with its imports replaced if they are."""
        if module.__name__ in _IMPORTED_BY:
            self._execute_in_surroundings(module)
        else:
            self._loader.exec_module(module)
        if then := _AFTER_IMPORT.get(module.__name__):
            then(module)

    def _execute_in_surroundings(self, module: ModuleType) -> None:
        name, contents = _IMPORTED_BY[module.__name__]
        stand_in = ModuleType(name)
        vars(stand_in).update(contents())
        before = sys.modules.get(name)
        sys.modules[name] = stand_in
        try:
            self._loader.exec_module(module)
        finally:
            del sys.modules[name]
            if before is not None:
                sys.modules[name] = before


def _importer() -> str:
    """Return the package for which a module is imported."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in _BETWEEN:
            return package
        frame = frame.f_back
    return ""


class _WithoutUnused:
    """Prevents the import of some packages in this process, and replaces some modules."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Raise an error for the packages if they are spared, leave all but the modules to other finders."""
        if fullname in _UNUSED and _importer() in _SPARED:
            raise ModuleNotFoundError("not used by this command", name=fullname)
        if fullname in _IMPORTED_BY or fullname in _AFTER_IMPORT:
            spec = PathFinder.find_spec(fullname, path, target)
            if spec is not None:
                spec.loader = cast("Any", _Loaded(spec))
            return spec
        return ModuleSpec(fullname, cast("Any", self)) if fullname in _STAND_INS else None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Let Python create the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Fill a module. Any other name is taken from the real module."""
        name = module.__name__

        def of_true_module(attribute: str) -> Any:
            if attribute.startswith("__"):
                raise AttributeError(attribute)
            if _STAND_INS.pop(name, None) is not None:
                del sys.modules[name]
            return getattr(importlib.import_module(name), attribute)

        def later(attribute: str) -> _Later:
            return _Later(lambda: of_true_module(attribute))

        contents = {key: later(key) if value is None else value for key, value in _STAND_INS[name].items()}
        vars(module).update(contents, __getattr__=of_true_module)


def _compiled_when_called(create: Callable[..., Any]) -> Callable[..., Any]:
    """Return what dataclasses of Python before 3.13 create methods with, but each is compiled when called.

    They compile all methods of each class, of which a small run calls one in ten.
    """

    def create_later(name: str, *arguments: Any, **named: Any) -> Callable[..., Any]:
        made: list[Callable[..., Any]] = []

        def method(*of_call: Any, **named_of_call: Any) -> Any:
            if not made:
                made.append(create(name, *arguments, **named))
                for kind in type(of_call[0]).__mro__:
                    if vars(kind).get(name) is method:
                        setattr(kind, name, made[0])
            return made[0](*of_call, **named_of_call)

        method.__name__ = name
        return method

    return create_later


def start_small() -> None:
    """Skip what a run over a small file does not need.

    It applies to the whole process, and must be called before the imports that it makes cheaper.
    """
    gc.set_threshold(_COLLECT_AFTER)
    atexit.register(gc.freeze)  # the process ends without a search for garbage, a sixth of its time
    sys.meta_path.insert(0, _WithoutUnused())
    keep_memory()
    of_dataclasses = vars(dataclasses)
    if "_create_fn" in of_dataclasses:
        of_dataclasses["_create_fn"] = _compiled_when_called(of_dataclasses["_create_fn"])
    # numpy's linear algebra, which is not used, starts a thread for each core, which spins until it has work.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
