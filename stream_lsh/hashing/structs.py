# Numba is hardly typed.
# mypy: disable-error-code="no-untyped-call,override"
"""Structs for kernels: arrays, numbers and other structs by name, passed by reference.

Numba passes a tuple of arrays by value at each call between kernels, some seven numbers for each array. With sixty
arrays that takes longer than the work itself, and most of the time to compile. A `Struct` is one address. In Python its
attributes are ordinary values; kernels can read all of them and write numbers, but not replace arrays and structs.

    class Memory(Struct):
        slots: Words2
        shift: Unsigned

    memory = Memory(slots=np.zeros((1024, 2), np.uint64), shift=np.uint64(54))
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, NamedTuple, Self, get_args, get_type_hints

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    lower_setattr_generic,
    models,
    register_model,
    unbox,
)
from numba.np.arrayobj import make_array, populate_array
from numba.np.numpy_support import as_dtype
from numpy.typing import NDArray

_I64 = ir.IntType(64)


def _array(kind: types.Type, dimensions: int) -> Any:
    return types.Array(kind, dimensions, "C")


Number = Annotated[int, types.int64]
Unsigned = Annotated[np.uint64, types.uint64]
Real = Annotated[float, types.float64]
Flag = Annotated[bool, types.int64]
Words = Annotated[NDArray[np.uint64], _array(types.uint64, 1)]
Words2 = Annotated[NDArray[np.uint64], _array(types.uint64, 2)]
Halves = Annotated[NDArray[np.uint32], _array(types.uint32, 1)]
Quarters = Annotated[NDArray[np.uint16], _array(types.uint16, 1)]
Steps = Annotated[NDArray[np.int32], _array(types.int32, 1)]
Bytes = Annotated[NDArray[np.uint8], _array(types.uint8, 1)]
Flags = Annotated[NDArray[np.bool_], _array(types.boolean, 1)]
Numbers = Annotated[NDArray[np.int64], _array(types.int64, 1)]
Numbers2 = Annotated[NDArray[np.int64], _array(types.int64, 2)]
Reals = Annotated[NDArray[np.float64], _array(types.float64, 1)]

_BYTE = ctypes.c_char
_VIEWED = types.int64, types.uint64, types.float64


class StructType(types.Type):
    """Numba's type of a struct: its name, and for each field its name, its type and its place among the words."""

    def __init__(self, name: str, fields: dict[str, Any]) -> None:
        self.places: dict[str, tuple[Any, int]] = {}
        at = 0
        for field, kind in fields.items():
            self.places[field] = kind, at
            at += 1 + kind.ndim if isinstance(kind, types.Array) else 1
        self.words = at
        super().__init__(f"struct {name} {fields}")


class _Array(NamedTuple):
    """Place and kind of an array among the fields of a struct."""

    at: int
    kind: np.dtype[Any]
    dimensions: int


def _number(at: int, view: int) -> property:
    """The attribute for a number, which kernels may change: its place, and its place in `_views`."""
    return property(lambda struct: struct._views[view][at])


class Struct:
    """Base of structs. Fields are annotated with the types above, or with another struct.

    An array must be contiguous and of its field's type.
    """

    numba_type: ClassVar[StructType]
    _numba_type_: ClassVar[StructType]  # the same under the name by which numba finds it without calling Python
    _arrays: ClassVar[dict[str, _Array]]
    _structs: ClassVar[dict[str, tuple[int, StructType]]]
    _numbers: ClassVar[dict[str, tuple[int, int]]]  # place, and place in `_views`
    address: int
    _words: NDArray[np.int64]  # for kernels that let fields point to other arrays
    _views: tuple[memoryview, ...]  # of the same words as int64, uint64 and float64

    def __init_subclass__(cls) -> None:
        fields = {}
        for name, hint in get_type_hints(cls, include_extras=True).items():
            if isinstance(hint, type) and issubclass(hint, Struct):
                fields[name] = hint.numba_type
            elif hasattr(hint, "__metadata__"):
                fields[name] = get_args(hint)[1]
        cls.numba_type = cls._numba_type_ = StructType(cls.__qualname__, fields)
        cls._arrays, cls._structs, cls._numbers = {}, {}, {}
        for name, (kind, at) in cls.numba_type.places.items():
            if isinstance(kind, types.Array):
                cls._arrays[name] = _Array(at, as_dtype(kind.dtype), kind.ndim)
            elif isinstance(kind, StructType):
                cls._structs[name] = at, kind
            else:
                cls._numbers[name] = at, _VIEWED.index(kind)
                setattr(cls, name, _number(*cls._numbers[name]))

    def __init__(self, **values: Any) -> None:
        places = self.numba_type.places
        if len(values) < len(places):
            raise TypeError(f"{type(self).__name__} needs {', '.join(sorted(places.keys() - values.keys()))}")
        self._hold(np.zeros(self.numba_type.words, np.int64))
        for name, array in self._arrays.items():
            self._point(name, array, values[name])
        for name, value in values.items():
            if name not in self._arrays:
                setattr(self, name, value)

    @classmethod
    def of_arrays(cls, fill: Callable[..., object], **arrays: NDArray[Any]) -> Self:
        """Like the constructor for a struct that has arrays only, in a third of the time. fill: a kernel that writes
        the address and the extents of each of them into words of int64, and returns the address of these; it checks no
        types."""
        struct, words = object.__new__(cls), np.empty(cls.numba_type.words, np.int64)
        struct.__dict__.update(arrays, address=fill(words, *arrays.values()), _views=(words.data,))
        return struct

    def _hold(self, words: NDArray[np.int64]) -> None:
        octets = words.data.cast("B")
        self.__dict__.update(
            address=ctypes.addressof(_BYTE.from_buffer(words.data)),
            _words=words,
            _views=(octets.cast("q"), octets.cast("Q"), octets.cast("d")),
        )

    def __setattr__(self, name: str, value: Any) -> None:
        held = self.__dict__
        if (number := self._numbers.get(name)) is not None:
            at, view = number
            held["_views"][view][at] = value
            return
        if held.get(name) is value:  # as most arrays and structs from one batch to the next
            return
        if (array := self._arrays.get(name)) is not None:
            self._point(name, array, value)
        elif (struct := self._structs.get(name)) is not None:
            at, wanted = struct
            if not isinstance(value, Struct) or value.numba_type is not wanted:
                raise TypeError(f"{type(self).__name__}.{name} must be a {wanted}")
            held["_views"][0][at] = value.address
        held[name] = value  # also keeps a reference

    def _point(self, name: str, field: _Array, array: NDArray[Any]) -> None:
        """Let an array's field point to this array, which is kept."""
        at, kind, dimensions = field
        shape, held = array.shape, self.__dict__
        if array.dtype != kind or len(shape) != dimensions or not array.flags.c_contiguous:
            raise TypeError(f"{type(self).__name__}.{name} must be a contiguous {kind}[{dimensions}]")
        words = held["_views"][0]
        try:
            words[at] = ctypes.addressof(_BYTE.from_buffer(array.data)) if shape[0] else 0
        except (TypeError, ValueError):  # it is read-only, or empty
            words[at] = array.ctypes.data  # takes three times as long
        words[at + 1] = shape[0]
        if dimensions == 2:
            words[at + 2] = shape[1]
        held[name] = array

    def replaced(self, **values: Any) -> Self:
        """A copy with other values of these fields; arrays are shared."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy._hold(np.array(self._views[0]))
        for name, value in values.items():
            setattr(copy, name, value)
        return copy


register_model(StructType)(models.OpaqueModel)


@unbox(StructType)
def _unbox(kind: Any, value: Any, context: Any) -> Any:
    address = context.pyapi.object_getattr_string(value, "address")
    number = context.pyapi.long_as_longlong(address)
    context.pyapi.decref(address)
    pointer = context.builder.inttoptr(number, cgutils.voidptr_t)
    return NativeValue(pointer, is_error=cgutils.is_not_null(context.builder, context.pyapi.err_occurred()))


@infer_getattr
class _Fields(AttributeTemplate):
    key = StructType

    def generic_resolve(self, kind: Any, name: str) -> Any:
        return kind.places[name][0] if name in kind.places else None


def _place(builder: Any, struct: Any, at: int) -> Any:
    """Address of a word of a struct."""
    words = builder.bitcast(struct, _I64.as_pointer())
    return builder.gep(words, [ir.Constant(_I64, at)])


@lower_getattr_generic(StructType)
def _get(context: Any, builder: Any, kind: Any, struct: Any, name: str) -> Any:
    field, at = kind.places[name]
    if isinstance(field, StructType):
        return builder.inttoptr(builder.load(_place(builder, struct, at)), cgutils.voidptr_t)
    if not isinstance(field, types.Array):
        place = _place(builder, struct, at)
        return builder.load(builder.bitcast(place, context.get_value_type(field).as_pointer()))
    array = make_array(field)(context, builder)
    data = builder.inttoptr(builder.load(_place(builder, struct, at)), array.data.type)
    shape = [builder.load(_place(builder, struct, at + 1 + k)) for k in range(field.ndim)]
    size = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(field.dtype)))
    strides = [size]
    for extent in shape[:0:-1]:
        strides.insert(0, builder.mul(strides[0], extent))
    populate_array(array, data=data, shape=shape, strides=strides, itemsize=size, meminfo=None)
    return array._getvalue()


@lower_setattr_generic(StructType)
def _set(context: Any, builder: Any, signature: Any, arguments: Any, name: str) -> None:
    struct, value = arguments
    field, at = signature.args[0].places[name]
    if isinstance(field, types.Array | StructType):
        raise TypeError(f"kernels cannot replace {name}, only numbers")
    value = context.cast(builder, value, signature.args[1], field)
    place = _place(builder, struct, at)
    builder.store(value, builder.bitcast(place, value.type.as_pointer()))
