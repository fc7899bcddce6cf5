"""The PJRT C interface as data: functions in their order, the fields of their arguments, element types, error codes.

`FUNCTIONS` lists the functions of version 0.90 in the order in which the interface's structure has them, each with the fields of
its one argument, a structure that starts with its own size and a pointer to extensions. A field is `name:letter`, and the letter
is a C type of `LETTERS` or one of the structures of `INNER`. Later versions only append: fields to arguments, functions to the
table. So whoever calls with a smaller structure than is written here speaks an older version, and is refused (`check_size`).

Names, order and numbers are facts of the interface (openxla/xla, `xla/pjrt/c/pjrt_c_api.h`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

__all__ = [
    "API_SIZE", "ARGUMENTS", "CODES", "ELEMENTS", "FUNCTIONS", "VERSION", "Chunk", "ExecuteOptions", "MemoryLayout",
    "NamedValue", "Program", "ShapeSpec", "check_size", "element_number", "structure",
]  # fmt: skip

VERSION = (0, 90)

LETTERS: dict[str, Any] = {
    "p": ctypes.c_void_p,
    "z": ctypes.c_size_t,
    "i": ctypes.c_int,
    "q": ctypes.c_int64,
    "Q": ctypes.c_uint64,
    "f": ctypes.c_float,
    "b": ctypes.c_bool,
}


def structure(
    name: str, fields: str, has_header: bool = True, inner: Mapping[str, Any] | None = None, has_size: bool = False
) -> Any:
    """The C structure with these fields; those of `inner` lie inside it. A header is its size and a pointer to extensions.

    >>> ctypes.sizeof(structure("Pair", "a:i b:p")), ctypes.sizeof(structure("Pair", "a:i b:p", has_header=False))
    (32, 16)
    """
    rows = [tuple(f.split(":")) for f in fields.split()]
    header = [("struct_size", ctypes.c_size_t), ("extension", ctypes.c_void_p)][: 2 if has_header else int(has_size)]
    inside = INNER if inner is None else inner
    return type(name, (ctypes.Structure,), {"_fields_": [*header, *((n, LETTERS.get(t) or inside[t]) for n, t in rows)]})


INNER: dict[str, Any] = {}
"""Structures that lie inside others."""


class _Value(ctypes.Union):
    _fields_ = (("address", ctypes.c_void_p), ("number", ctypes.c_int64), ("real", ctypes.c_float), ("truth", ctypes.c_bool))


INNER["value"] = _Value
NamedValue = INNER["named"] = structure("NamedValue", "name:p name_size:z type:i value:value value_size:z")
_Tiled = INNER["tiled"] = structure("Tiled", "minor_to_major:p rank:z tile_dims:p tile_sizes:p tiles:z")
_Strided = INNER["strided"] = structure("Strided", "strides:p rank:z")


class _LayoutForm(ctypes.Union):
    _fields_ = (("tiled", _Tiled), ("strided", _Strided))


INNER["form"] = _LayoutForm
MemoryLayout = INNER["layout"] = structure("MemoryLayout", "form:form type:i")
Program = structure("Program", "code:p code_size:z format:p format_size:z")
ShapeSpec = structure("ShapeSpec", "dims:p rank:z element:i")
ExecuteOptions = structure(
    "ExecuteOptions", "send:p receive:p sends:z receives:z launch:i kept:p kept_count:z context:p location:p",
)  # fmt: skip
Chunk = structure("Chunk", "data:p size:z deleter:p deleter_argument:p", has_header=False)

_TEXT = "text:p text_size:z"
_SHAPE = "dims:p rank:z element:i layout:p"
_ERROR = "code:i text:p text_size:z"
_SERIAL = "bytes:p bytes_size:z holder:p deleter:p"

_TABLE = f"""
Error_Destroy error:p
Error_Message error:p {_TEXT}
Error_GetCode error:p code:i
Plugin_Initialize
Plugin_Attributes attributes:p count:z
Event_Destroy event:p
Event_IsReady event:p is_ready:b
Event_Error event:p
Event_Await event:p
Event_OnReady event:p callback:p user:p
Client_Create options:p count:z get:p get_user:p put:p put_user:p client:p try_get:p try_get_user:p
Client_Destroy client:p
Client_PlatformName client:p {_TEXT}
Client_ProcessIndex client:p index:i
Client_PlatformVersion client:p {_TEXT}
Client_Devices client:p devices:p count:z
Client_AddressableDevices client:p devices:p count:z
Client_LookupDevice client:p id:i device:p
Client_LookupAddressableDevice client:p id:i device:p
Client_AddressableMemories client:p memories:p count:z
Client_Compile client:p program:p options:p options_size:z executable:p
Client_DefaultDeviceAssignment client:p replicas:i partitions:i count:z assignment:p
Client_BufferFromHostBuffer client:p data:p element:i dims:p rank:z strides:p strides_count:z semantics:i device:p memory:p
 layout:p done:p buffer:p
DeviceDescription_Id description:p id:i
DeviceDescription_ProcessIndex description:p index:i
DeviceDescription_Attributes description:p count:z attributes:p
DeviceDescription_Kind description:p {_TEXT}
DeviceDescription_DebugString description:p {_TEXT}
DeviceDescription_ToString description:p {_TEXT}
Device_GetDescription device:p description:p
Device_IsAddressable device:p is_addressable:b
Device_LocalHardwareId device:p id:i
Device_AddressableMemories device:p memories:p count:z
Device_DefaultMemory device:p memory:p
Device_MemoryStats device:p used:q peak:q has_peak:b allocations:q has_allocations:b largest:q has_largest:b limit:q has_limit:b
 reserved:q has_reserved:b peak_reserved:q has_peak_reserved:b reservable:q has_reservable:b free:q has_free:b pool:q has_pool:b
 peak_pool:q has_peak_pool:b
Memory_Id memory:p id:i
Memory_Kind memory:p {_TEXT}
Memory_DebugString memory:p {_TEXT}
Memory_ToString memory:p {_TEXT}
Memory_AddressableByDevices memory:p devices:p count:z
Executable_Destroy executable:p
Executable_Name executable:p {_TEXT}
Executable_NumReplicas executable:p count:z
Executable_NumPartitions executable:p count:z
Executable_NumOutputs executable:p count:z
Executable_SizeOfGeneratedCodeInBytes executable:p size:q
Executable_GetCostAnalysis executable:p count:z properties:p
Executable_OutputMemoryKinds executable:p count:z kinds:p sizes:p
Executable_OptimizedProgram executable:p program:p
Executable_Serialize executable:p {_SERIAL}
LoadedExecutable_Destroy executable:p
LoadedExecutable_GetExecutable loaded:p executable:p
LoadedExecutable_AddressableDevices executable:p devices:p count:z
LoadedExecutable_Delete executable:p
LoadedExecutable_IsDeleted executable:p is_deleted:b
LoadedExecutable_Execute executable:p options:p arguments:p devices:z count:z outputs:p events:p device:p
Executable_DeserializeAndLoad client:p bytes:p bytes_size:z executable:p options:p options_size:z
LoadedExecutable_Fingerprint executable:p {_TEXT}
Buffer_Destroy buffer:p
Buffer_ElementType buffer:p element:i
Buffer_Dimensions buffer:p dims:p rank:z
Buffer_UnpaddedDimensions buffer:p dims:p rank:z
Buffer_DynamicDimensionIndices buffer:p dims:p rank:z
Buffer_GetMemoryLayout buffer:p layout:layout
Buffer_OnDeviceSizeInBytes buffer:p size:z
Buffer_Device buffer:p device:p
Buffer_Memory buffer:p memory:p
Buffer_Delete buffer:p
Buffer_IsDeleted buffer:p is_deleted:b
Buffer_CopyToDevice buffer:p device:p copy:p
Buffer_ToHostBuffer buffer:p layout:p target:p size:z event:p
Buffer_IsOnCpu buffer:p is_on_cpu:b
Buffer_ReadyEvent buffer:p event:p
Buffer_UnsafePointer buffer:p address:p
Buffer_IncreaseExternalReferenceCount buffer:p
Buffer_DecreaseExternalReferenceCount buffer:p
Buffer_OpaqueDeviceMemoryDataPointer buffer:p address:p
CopyToDeviceStream_Destroy stream:p
CopyToDeviceStream_AddChunk stream:p chunk:p event:p
CopyToDeviceStream_TotalBytes stream:p size:q
CopyToDeviceStream_GranuleSize stream:p size:q
CopyToDeviceStream_CurrentBytes stream:p size:q
TopologyDescription_Create {_TEXT} options:p count:z topology:p
TopologyDescription_Destroy topology:p
TopologyDescription_PlatformName topology:p {_TEXT}
TopologyDescription_PlatformVersion topology:p {_TEXT}
TopologyDescription_GetDeviceDescriptions topology:p descriptions:p count:z
TopologyDescription_Serialize topology:p {_SERIAL}
TopologyDescription_Attributes topology:p attributes:p count:z
Compile topology:p program:p options:p options_size:z client:p executable:p
Executable_OutputElementTypes executable:p types:p count:z
Executable_OutputDimensions executable:p count:z dims:p ranks:p
Buffer_CopyToMemory buffer:p memory:p copy:p
Client_CreateViewOfDeviceBuffer client:p address:p dims:p rank:z element:i layout:p device:p on_delete:p on_delete_user:p stream:p
 buffer:p memory:p
Executable_Fingerprint executable:p {_TEXT}
Client_TopologyDescription client:p topology:p
Executable_GetCompiledMemoryStats executable:p code:q arguments:q outputs:q aliases:q temporary:q host_code:q host_arguments:q
 host_outputs:q host_aliases:q host_temporary:q
Memory_Kind_Id memory:p id:i
ExecuteContext_Create context:p
ExecuteContext_Destroy context:p
Buffer_CopyRawToHost buffer:p target:p offset:q size:q event:p
AsyncHostToDeviceTransferManager_Destroy manager:p
AsyncHostToDeviceTransferManager_TransferData manager:p index:i data:p offset:q size:q is_last:b event:p
Client_CreateBuffersForAsyncHostToDevice client:p shapes:p count:z layouts:p layouts_count:z memory:p manager:p
AsyncHostToDeviceTransferManager_RetrieveBuffer manager:p index:i buffer:p
AsyncHostToDeviceTransferManager_Device manager:p device:p
AsyncHostToDeviceTransferManager_BufferCount manager:p count:z
AsyncHostToDeviceTransferManager_BufferSize manager:p index:i size:z
AsyncHostToDeviceTransferManager_SetBufferError manager:p index:i {_ERROR}
AsyncHostToDeviceTransferManager_AddMetadata manager:p metadata:p count:z
Client_DmaMap client:p data:p size:z
Client_DmaUnmap client:p data:p
Client_CreateUninitializedBuffer client:p {_SHAPE} device:p memory:p buffer:p
Client_UpdateGlobalProcessInfo client:p infos:p count:z
TopologyDescription_Deserialize bytes:p bytes_size:z topology:p
Client_CreateAliasBuffer client:p memory:p {_SHAPE} buffer:p callback:p
Client_FulfillAliasBuffer client:p buffer:p {_ERROR} callback:p
LoadedExecutable_GetDeviceAssignment executable:p {_SERIAL}
Client_CreateErrorBuffer client:p {_ERROR} {_SHAPE} memory:p buffer:p
AsyncHostToDeviceTransferManager_TransferLiteral manager:p index:i data:p {_SHAPE} event:p
Buffer_CopyRawToHostFuture buffer:p offset:q size:q event:p data:p callback:p
Device_PoisonExecution device:p launch:i {_ERROR} is_poisoned:b
Device_CreateAsyncTrackingEvent device:p {_TEXT} event:p
AsyncTrackingEvent_Destroy event:p
Executable_GetCompileOptions executable:p {_SERIAL}
Buffer_DonateWithControlDependency buffer:p data:p callback:p copy:p
Event_Create event:p
Event_Set event:p {_ERROR}
""".replace("\n ", " ")

ARGUMENTS: dict[str, Any] = {
    name: structure(f"{name}_Args", fields) for name, _, fields in (row.partition(" ") for row in _TABLE.strip().splitlines())
}
FUNCTIONS: tuple[str, ...] = tuple(ARGUMENTS)

_API_HEADER = 5 * 8
"""Size and extensions of the table itself; size, extensions and two numbers of its version."""

API_SIZE = _API_HEADER + 8 * len(FUNCTIONS)


def check_size(name: str, size: int) -> str | None:
    """What is wrong with a caller whose arguments of a function have `size` bytes, or None: a newer one has more."""
    arguments = ARGUMENTS[name]
    last, _ = arguments._fields_[-1]
    least = getattr(arguments, last).offset + getattr(arguments, last).size
    if size >= least:
        return None
    return (
        f"PJRT_{name}: this jaxlib passes {size} bytes of arguments, where version {VERSION[0]}.{VERSION[1]} of the interface "
        f"has {least}: it speaks an older version than this plugin"
    )


CODES = {
    name: number
    for number, name in enumerate(
        "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED RESOURCE_EXHAUSTED"
        " FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED".split()
    )
}

_ELEMENT_NAMES = (
    "- bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bfloat16 complex64 complex128 float8_e5m2"
    " float8_e4m3fn float8_e4m3b11fnuz float8_e5m2fnuz float8_e4m3fnuz int4 uint4 - int2 uint2 float8_e4m3 float8_e3m4"
    " float8_e8m0fnu float4_e2m1fn"
).split()

ELEMENTS: dict[int, np.dtype[Any]] = {
    number: np.dtype(getattr(ml_dtypes, name, None) or name) for number, name in enumerate(_ELEMENT_NAMES) if name != "-"
}
"""NumPy's types by their numbers; the numbers of tokens and of the invalid type are not among them."""

_NUMBERS = {dtype: number for number, dtype in ELEMENTS.items()}


def element_number(dtype: np.dtype[Any]) -> int:
    """The interface's number of an element type. Raises KeyError for one that it has not."""
    return _NUMBERS[dtype]
