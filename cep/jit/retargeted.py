"""Machine code of a kernel for several processors. It is imported only when something must be compiled.

numba compiles a kernel up to LLVM's optimized code. From this, LLVM makes machine code for each processor.

Private parts of numba that are used here, apart from those of `cep.jit.numba_compiler`
(`tests/unit/jit/test_processors.py` compiles a kernel): the parts of an unfinalized library that numba keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm
import numba
from numba.core import environment
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_lock import global_compiler_lock
from numba.core.typed_passes import NopythonTypeInference

from cep.jit.arguments import Key
from cep.jit.compiled import Kernel, compiler
from cep.jit.loading import target_machine
from cep.jit.numba_compiler import UnsignedIndices, WithinKernels, types_of
from cep.jit.processors import Processor
from cep.jit.stored import MachineCode


class _Pipeline(CompilerBase):
    """Compiles a kernel as `cep.jit.numba_compiler` does, but makes no machine code, as for parts."""

    def define_pipelines(self) -> list[Any]:
        builder = DefaultPassBuilder.define_nopython_pipeline(self.state)
        builder.add_pass_after(UnsignedIndices, NopythonTypeInference)
        builder.add_pass_after(WithinKernels, UnsignedIndices)
        builder.finalize()
        return [builder]


_OPTIONS: dict[str, Any] = {"nogil": True, "_nrt": False, "pipeline_class": _Pipeline}


def machine_codes(kernel: Kernel, key: Key, processors: Sequence[Processor]) -> list[MachineCode]:
    """Compile a kernel for arguments of some types, for each processor.

    Code that contains Python objects is valid only in this process; in that case none is returned.
    """
    compiler()
    signature = types_of(key)
    dispatcher: Any = numba.njit(**_OPTIONS)(kernel.py_func)
    dispatcher.compile(signature)
    result = dispatcher.overloads[signature]
    library, description = result.library, result.fndesc
    with global_compiler_lock:
        library._ensure_finalized()  # LLVM optimizes the code
    module = library._final_module
    objects = [environment.lookup_environment(value.name) for value in module.global_variables]
    if library.has_dynamic_globals or any(found is not None and found.consts for found in objects):
        return []
    needed = tuple(
        value.name
        for value in (*module.functions, *module.global_variables)
        if value.is_declaration and not value.name.startswith("llvm.")
    )
    names = description.llvm_cpython_wrapper_name, description.env_name
    return [MachineCode(key, *names, needed, _object(str(module), processor)) for processor in processors]


def _object(module: str, processor: Processor) -> bytes:
    """Return machine code as an object file. All processors lay out the memory of kernels in the same way."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = target_machine(llvm.Target.from_triple(processor.triple), cpu=processor.model, opt=3)
    parsed = llvm.parse_assembly(module)
    parsed.triple, parsed.data_layout = processor.triple, str(target.target_data)
    parsed.verify()
    code: bytes = target.emit_object(parsed)
    return code
