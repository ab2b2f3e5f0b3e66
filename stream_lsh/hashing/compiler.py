# Numba is hardly typed.
# mypy: disable-error-code="no-untyped-call,attr-defined,override"
"""Compilation of kernels: each as one piece, with all functions that it calls.

Numba compiles each function by itself, and inlines it whole into each caller. In a kernel with ten levels of calls the
innermost function is optimised and compiled ten times. Here a function that is called by a kernel becomes LLVM code
only. A kernel that Python calls is optimised once, with all its parts, and cached on disk (`cache`). A function that
both call is compiled as both.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

from llvmlite import binding as llvm  # type: ignore[import-untyped]
from llvmlite import ir
from numba.core import cgutils, compiler, sigutils, typed_passes, types, typing, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager
from numba.core.dispatcher import _FunctionCompiler
from numba.core.registry import CPUDispatcher
from numba.core.typing import Context

from stream_lsh.hashing.cache import KernelCache

_PASSES = (
    untyped_passes.TranslateByteCode, untyped_passes.FixupArgs, untyped_passes.IRProcessing,
    untyped_passes.GenericRewrites, untyped_passes.ReconstructSSA, typed_passes.NopythonTypeInference,
    typed_passes.PreLowerStripPhis, typed_passes.IRLegalization, typed_passes.NativeLowering,
    typed_passes.NoPythonBackend,
)  # fmt: skip
"""Numba's passes over a function, without those that kernels do not need: kernels have no closures, generators,
comprehensions or exceptions with arguments, and LLVM does the inlining."""


class _Part(JITCodeLibrary):
    """LLVM code of a function that kernels call."""

    def _optimize_functions(self, _: Any) -> None:
        """The kernel is optimised, with this in it."""

    def finalize(self) -> None:
        """Nothing is optimised or compiled here; the kernel does it."""
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == llvm.Linkage.external:
                function.linkage = "linkonce_odr"  # may be inlined, and omitted where it was inlined everywhere
        self._finalized = True


class _Whole(JITCodeLibrary):
    """Code of a kernel with all its parts."""

    def finalize(self) -> None:
        for library in _needed(self._linking_libraries, set()):
            if hasattr(library, "_reload_init"):  # numba 0.60 has none
                self._reload_init.update(library._reload_init)
            module = library._final_module if isinstance(library, _Part) else library._get_module_for_linking()
            self._final_module.link_in(module, preserve=True)
        self._optimize_final_module()
        self._final_module.verify()
        self._finalize_final_module()

    def serialize_using_object_code(self) -> tuple[str, str, tuple[bytes, bytes]]:
        """What the cache stores: machine code, and the names in it. No other code is linked with it."""
        names = ir.Module()
        names.triple = self._final_module.triple
        for function in self.get_defined_functions():
            stub = ir.Function(names, ir.FunctionType(ir.VoidType(), ()), function.name)
            ir.IRBuilder(stub.append_basic_block()).ret_void()
        module = llvm.parse_assembly(str(names))
        return self.name, "object", (self._get_compiled_object(), module.as_bitcode())


def _needed(libraries: Iterable[Any], seen: set[Any]) -> Iterator[Any]:
    """These libraries and those that their parts need, each once. Numba's own libraries include theirs."""
    for library in libraries:
        if library not in seen:
            seen.add(library)
            yield library
            if isinstance(library, _Part):
                yield from _needed(library._linking_libraries, seen)


class _Typing(Context):
    """Numba's types of functions, each found once: for `a + b` it asks some forty templates, at every place where it
    is.

    All state is that of the context given.
    """

    _found: ClassVar[dict[Any, Any]] = {}  # by function and argument types: the signature

    def __init__(self, context: Any) -> None:
        self.__dict__ = context.__dict__

    def resolve_function_type(self, function: Any, arguments: Any, keywords: Any) -> Any:
        # Kernels have a memory of their own; a function with a name is an access whose arguments are values.
        if keywords or isinstance(function, types.Dispatcher | str):
            return super().resolve_function_type(function, arguments, keywords)
        key = function, tuple(arguments)
        if key not in self._found:
            found = super().resolve_function_type(function, arguments, keywords)
            if found is None:
                return None
            self._found[key] = found
        return self._found[key]


class _Compiler(compiler.CompilerBase):
    """Compiles one function with the passes above."""

    library: ClassVar[type[JITCodeLibrary]] = _Whole

    def compile_extra(self, function: Callable[..., Any]) -> Any:
        self.state.typingctx = _Typing(self.state.typingctx)
        self.state.library = self.library(self.state.targetctx.codegen(), function.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(function)

    def define_pipelines(self) -> list[PassManager]:
        passes = PassManager("kernel")
        for step in _PASSES:
            passes.add_pass(step, step.__name__)
        passes.finalize()
        return [passes]


class _PartCompiler(_Compiler):
    library = _Part


class _PartFunction(_FunctionCompiler):  # type: ignore[misc]
    def _customize_flags(self, flags: Any) -> Any:
        flags.no_compile = True  # only lowered
        flags.no_cpython_wrapper = True  # Python does not call it
        return flags


class Kernel(CPUDispatcher):
    """A function that is compiled when Python or another kernel first calls it with arguments of certain types.

    Attributes:
        loaded: number of kernels that this process has compiled or loaded.
    """

    loaded: ClassVar[int] = 0

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        super().__init__(function, targetoptions=options, pipeline_class=_Compiler)
        self._part_compiler = _PartFunction(function, self.targetdescr, options, {}, _PartCompiler)
        self._cache = KernelCache(function)
        self._parts: dict[tuple[Any, ...], tuple[object, Any]] = {}  # by argument types: numba's key, the result

    def ready(self, *arguments: Any) -> bool:
        """Whether it is compiled for arguments of these types."""
        return arguments in self.overloads or self._cache.has(arguments, self.targetctx)

    def compile(self, signature: Any) -> Any:
        """Load or compile it for Python to call."""
        arguments, _ = sigutils.normalize_signature(signature)
        if tuple(arguments) in self.overloads:
            return self.overloads[tuple(arguments)].entry_point
        with self._cache.alone(signature, self.targetctx), _no_garbage_collection():
            function = super().compile(signature)
            result = self.overloads[tuple(arguments)]
            for environment in result._find_referenced_environments():  # those of the parts too
                result.codegen.set_env(environment.env_name, environment)
        Kernel.loaded += 1
        return function

    # Numba calls these methods while it compiles a function that calls this one.

    def get_call_template(self, arguments: Any, keywords: Any) -> tuple[Any, ...]:
        python_signature, arguments = self._compiler.fold_argument_types(arguments, keywords)
        name = self.py_func.__name__
        arguments = tuple(map(types.unliteral, arguments))  # one part for f(x, 1) and f(x, 2); LLVM knows the numbers
        found = [self._part(arguments)[1].signature]
        return typing.make_concrete_template(name, key=name, signatures=found), python_signature, arguments, {}

    def get_overload(self, signature: Any) -> object:
        arguments, _ = sigutils.normalize_signature(signature)
        return self._part(tuple(arguments))[0]

    def _part(self, arguments: tuple[Any, ...]) -> tuple[object, Any]:
        with global_compiler_lock:
            if arguments not in self._parts:
                with self._compiling_counter:
                    result, key = self._part_compiler.compile(arguments, None), object()
                    self.targetctx.insert_user_function(key, result.fndesc, [result.library])
                    self._parts[arguments] = key, result
            return self._parts[arguments]


class FarKernel(Kernel):
    """A kernel that is compiled apart from its callers, and only where it is needed. They call it by its address, which
    `load` sets. A call before that raises RuntimeError.

    The address is in a variable that machine code finds by its name, so that callers can be cached on disk. It has one
    signature.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any], signature: Any) -> None:
        super().__init__(function, options)
        self._signature = signature
        self._address = ctypes.c_int64(0)
        self._name = f"{function.__module__}.{function.__qualname__}"
        llvm.add_symbol(self._name, ctypes.addressof(self._address))

    def ready(self, *arguments: Any) -> bool:
        """Whether it is compiled."""
        return bool(self._address.value) or super().ready(*self._signature.args)

    def load(self) -> None:
        """Load or compile it, unless that was done."""
        if not self._address.value:
            self.compile(self._signature.args)
            result = self.overloads[self._signature.args]
            if result.signature.return_type != self._signature.return_type:
                raise TypeError(f"{self._name} returns {result.signature.return_type}")
            self._address.value = result.library.get_pointer_to_function(result.fndesc.llvm_func_name)

    def _part(self, arguments: tuple[Any, ...]) -> tuple[object, Any]:
        with global_compiler_lock:
            if () not in self._parts:
                self._parts[()] = object(), _Signed(self._signature)
                self.targetctx.insert_func_defn([(self._call, self._parts[()][0], self._signature.args)])
            return self._parts[()]

    def _call(self, context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """LLVM code of a call by its address."""
        number = ir.IntType(64)
        try:
            variable = builder.module.get_global(self._name)
        except KeyError:
            variable = ir.GlobalVariable(builder.module, number, self._name)
        address = builder.load(variable)
        with cgutils.if_unlikely(builder, builder.icmp_unsigned("==", address, number(0))):
            context.call_conv.return_user_exc(builder, RuntimeError, (f"{self._name} is not loaded",))
        kind = context.call_conv.get_function_type(signature.return_type, signature.args)
        function = builder.inttoptr(address, kind.as_pointer())
        status, value = context.call_conv.call_function(
            builder, function, signature.return_type, signature.args, arguments
        )
        with cgutils.if_unlikely(builder, status.is_error):
            context.call_conv.return_status_propagate(builder, status)
        return value


class _Signed(NamedTuple):
    """The signature of a function that is compiled elsewhere."""

    signature: Any


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Compilation makes so many long-lived objects that garbage collection takes an eighth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
