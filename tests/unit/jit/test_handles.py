"""The private parts of numba that `cep.jit` uses. A test that fails says what another numba has changed."""

from __future__ import annotations

import ctypes
import importlib
import inspect
from importlib.metadata import version
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
import pytest
from numba import types
from numba.core import cgutils, environment, typed_passes
from numba.core.base import BaseContext
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.np import arrayobj

from cep.jit import compiled, foreign, loading, memory, numba_compiler

compiled.compiler()  # with it numba knows what an instruction is

ONE = types.Array(types.int64, 1, "C")


def add_up(values: Any) -> int:
    total = 0
    for place in range(len(values)):
        total += values[place]
    return total


@pytest.fixture(scope="module")
def dispatcher() -> Any:
    found = numba_compiler.kernel(add_up)
    found.compile((ONE,))
    return found


@pytest.fixture(scope="module")
def result(dispatcher: Any) -> Any:
    return dispatcher.overloads[(ONE,)]


def test_numba_is_a_version_that_the_gate_runs() -> None:
    assert version("numba").startswith("0.68."), "pyproject.toml binds numba to the versions that were tried"


@pytest.mark.parametrize("name", ["_helperlib", "_dynfunc"])
def test_modules_in_c_name_the_functions_that_machine_code_calls(name: str) -> None:
    helpers = loading._extension(name).c_helpers
    assert helpers, f"numba.{name}.c_helpers is empty: loading._register_symbols"
    assert all(isinstance(address, int) for address in helpers.values())


def test_a_module_in_c_is_the_one_that_numba_uses() -> None:
    for name in ("_helperlib", "_dynfunc"):
        assert loading._extension(name) is importlib.import_module(f"numba.{name}")


def test_numba_registers_symbols_as_we_do() -> None:
    from numba.core import base

    text = inspect.getsource(base._load_global_helpers)
    for part in (
        '"_Py_NoneStruct", id(None)',
        "_helperlib.c_helpers, _dynfunc.c_helpers",
        '"numba_" + py_name',
    ):
        assert part in text, "numba names its symbols in another way: loading._register_symbols"


def test_numba_sets_up_machine_code_on_disk_as_we_do() -> None:
    from numba.core import codegen

    text = inspect.getsource(codegen.JITCPUCodegen._customize_tm_options)
    for part in ("reloc_model = 'static'", "reloc_model = 'default'", "'jitdefault'"):
        assert part in text, "numba sets up LLVM in another way: loading.target_machine"


def test_make_function_and_environment_make_a_function_of_an_address(result: Any) -> None:
    dynamic = loading._extension("_dynfunc")
    made = dynamic.Environment({"__name__": __name__})
    assert made.consts == [], "an environment has other constants: loading.call"
    address = result.library.get_pointer_to_function(result.fndesc.llvm_cpython_wrapper_name)
    called = dynamic.make_function(inspect.getmodule(add_up), "add_up", "", address, made, ())
    assert called(np.arange(5)) == 10


def test_the_passes_and_the_builder_are_where_they_were() -> None:
    assert hasattr(DefaultPassBuilder, "define_nopython_pipeline")
    assert hasattr(typed_passes, "NopythonTypeInference")
    assert issubclass(numba_compiler._Pipeline, CompilerBase)
    builder = DefaultPassBuilder.define_nopython_pipeline(
        type("State", (), {"flags": numba.core.compiler.Flags(), "func_ir": None})()
    )
    names = [kind.__name__ if inspect.isclass(kind) else str(kind) for kind, _ in builder.passes]
    assert "NopythonTypeInference" in names, "UnsignedIndices follows it"


def test_indices_are_unsigned(dispatcher: Any) -> None:
    """A negative index is then far beyond the array; numba would have added the length."""
    text = dispatcher.inspect_llvm((ONE,))
    plain = numba.njit(nogil=True)(add_up)
    plain.compile((ONE,))
    assert len(text) < len(plain.inspect_llvm((ONE,))), "the pass UnsignedIndices has no effect any more"


def test_kernels_count_no_references(dispatcher: Any) -> None:
    text = dispatcher.inspect_llvm((ONE,))
    assert "NRT_incref" not in text, "the option _nrt has no effect any more"


@pytest.mark.parametrize(
    "name", ["_finalize_dynamic_globals", "_finalize_final_module", "get_pointer_to_function"]
)
def test_code_libraries_have_the_methods_that_parts_replace(name: str) -> None:
    assert callable(getattr(JITCodeLibrary, name)), "_PartCode replaces or calls it"


def test_code_libraries_have_a_codegen_with_set_env(result: Any) -> None:
    assert callable(result.library.codegen.set_env), "_PartCode has a codegen without it"


def test_parts_have_no_machine_code() -> None:
    part = numba_compiler.part(add_up, inline=True)
    part.compile((ONE,))
    library = part.overloads[(ONE,)].library
    assert isinstance(library, numba_compiler._PartCode), "the pass WithinKernels has no effect any more"
    assert not library._codegen._engine.is_symbol_defined(part.overloads[(ONE,)].fndesc.mangled_name)


def test_the_template_of_a_call_sees_no_constants() -> None:
    part = numba_compiler.part(lambda n: n + 1, inline=True)
    part.get_call_template((types.IntegerLiteral(3),), {})
    assert [tuple(signature) for signature in part.overloads] == [(types.int64,)], (
        "get_call_template is not asked"
    )


def test_an_environment_is_found_by_its_name(result: Any) -> None:
    assert environment.lookup_environment(result.fndesc.env_name) is result.environment
    assert result.environment.consts == []


def test_what_was_compiled_says_what_is_needed_to_load_it(result: Any) -> None:
    _, kind, (code, _) = result.library.serialize_using_object_code()
    assert (kind, bytes(code[:4])) == ("object", b"\x7fELF"), "serialize_using_object_code has another form"
    assert result.library.has_dynamic_globals is False
    names = {value.name for value in result.library._final_module.functions}
    assert result.fndesc.llvm_cpython_wrapper_name in names
    assert result.fndesc.env_name in {value.name for value in result.library._final_module.global_variables}
    assert callable(result.entry_point)


def test_machine_code_is_loaded_without_numbas_codegen(dispatcher: Any, result: Any) -> None:
    from cep.jit.arguments import key_of

    values = np.arange(7)
    code = numba_compiler._machine_code(result, key_of((values,)))
    assert code is not None
    assert loading.call(code, add_up)(values) == 21
    assert all(llvm.address_of_symbol(name) for name in code.needed)


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (cgutils.get_or_insert_function, ("module", "fnty", "name")),
        (cgutils.get_item_pointer, ("context", "builder", "aryty", "ary", "inds")),
        (arrayobj.make_array, ("array_type",)),
        (BaseContext.make_tuple, ("self", "builder", "typ", "values")),
        (BaseContext.cast, ("self", "builder", "val", "fromty", "toty")),
        (BaseContext.get_constant, ("self", "ty", "val")),
        (BaseContext.get_dummy_value, ("self",)),
    ],
)
def test_what_instructions_call_takes_what_it_took(function: Any, parameters: tuple[str, ...]) -> None:
    found = tuple(inspect.signature(function).parameters)
    assert found[: len(parameters)] == parameters, f"cep/jit/instructions.py calls {function.__qualname__}"


def test_a_pointer_to_bytes_has_the_type_that_instructions_cast_to() -> None:
    assert str(cgutils.voidptr_t) == "i8*", "cgutils.voidptr_t: instructions.prefetch"


def test_instructions_find_the_elements_of_an_array() -> None:
    read = numba.njit(lambda data, at: memory.read_word(data, at))
    data = np.arange(20, dtype=np.uint8)
    assert [int(read(data, at)) for at in (0, 3)] == [
        int.from_bytes(bytes(data[at : at + 8]), "little") for at in (0, 3)
    ], "instructions.read_word"


def test_instructions_fetch_rows_ahead() -> None:
    fetch = numba.njit(lambda table, row: memory.prefetch(table, row))
    table = np.arange(12).reshape(3, 4)
    fetch(table, 2)
    assert "@llvm.prefetch" in "".join(fetch.inspect_llvm().values()), "instructions.prefetch"


def test_instructions_call_c_functions() -> None:
    given: list[int] = []
    note = ctypes.CFUNCTYPE(None, ctypes.c_int64)(given.append)
    address = ctypes.cast(note, ctypes.c_void_p).value
    assert address is not None
    foreign.call_each(address, np.array([3, 5]))
    assert given == [3, 5], "instructions.call"
