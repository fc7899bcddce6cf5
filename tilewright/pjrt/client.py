"""The client, its devices with their memories, and their topology: what there is, told to jaxlib.

There is one device, or as many as TILEWRIGHT_DEVICES says. A device is described by its own handle.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import os
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from codegen.native import interrupts
from codegen.native.source_digest import source_digest
from codegen.target import default_target
from hlo.settings import positive_setting
from tilewright import __version__
from tilewright.jax.platform_name import PLATFORM
from tilewright.pjrt import records, threads
from tilewright.pjrt.handles import Problem, Text, living
from tilewright.pjrt.layout import NamedValue
from tilewright.pjrt.native import functions, state

__all__ = [
    "FUNCTIONS", "KINDS", "Device", "Memory", "client", "close", "device_of", "handle_list", "int64s", "memory_of",
    "named_values", "serial",
]  # fmt: skip

KINDS = ("device", "pinned_host", "unpinned_host")
"""The kinds of memory that a device has, as JAX's CPU has them: all are the process's. jaxlib takes the first one's name for
granted where it makes tokens."""
_PACKAGES = ("hlo", "indexing", "tiling", "codegen", "interp", "tilewright")
_STRING, _INT64, _INT64S, _FLOAT, _BOOL = range(5)


def int64s(values: Any) -> np.ndarray:
    """Numbers as C has them: an array that must live as long as they are read."""
    return np.array(list(values), np.int64)


def handle_list(handles: list[int]) -> Any:
    """Handles as C has them: an array that must live as long as they are read."""
    return (ctypes.c_uint64 * len(handles))(*handles)


class Named:
    """Named values in C: `address` and `count` of them, living as long as this."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.count = len(values)
        self._rows = (NamedValue * max(1, len(values)))()
        self._kept: list[Any] = []
        for row, (name, value) in zip(self._rows, values.items(), strict=False):
            row.struct_size = ctypes.sizeof(NamedValue)
            text = Text(name)
            self._kept.append(text)
            row.name, row.name_size, row.value_size = text.address, text.size, 1
            if isinstance(value, str):
                held = Text(value)
                self._kept.append(held)
                row.type, row.value.address, row.value_size = _STRING, held.address, held.size
            elif isinstance(value, bool):
                row.type, row.value.truth = _BOOL, value
            elif isinstance(value, float):
                row.type, row.value.real = _FLOAT, value
            elif isinstance(value, int):
                row.type, row.value.number = _INT64, value
            else:
                numbers = int64s(value)
                self._kept.append(numbers)
                row.type, row.value.address, row.value_size = _INT64S, numbers.ctypes.data, numbers.size
        self.address = ctypes.addressof(self._rows)


def named_values(values: dict[str, Any]) -> Named:
    """Named values in C."""
    return Named(values)


# ---------------------------------------------------------------- what there is


class Memory:
    """A memory of a device: where its record (`records`) is, and texts. `which` is the number of its kind."""

    def __init__(self, device: Device, which: int) -> None:
        self.device, self.which = device, which
        self.number = device.number * len(KINDS) + which
        self.handle = device.handle + 8 * (records.DEVICE_WORDS + which * records.PLACE_WORDS)
        self.kind = Text(KINDS[which])
        self.text = Text(f"TilewrightMemory(id={self.number}, kind={KINDS[which]})")
        self.own_device = (ctypes.c_uint64 * 1)(device.handle)


class Device:
    """A device with its memories: records (`records`) that live as long as the process, and texts."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._words = (ctypes.c_int64 * (records.DEVICE_WORDS + len(KINDS) * records.PLACE_WORDS))()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._words))
        self.handle = ctypes.addressof(self._words)
        self.memories = tuple(Memory(self, which) for which in range(len(KINDS)))
        self.memory = self.memories[0].handle
        rows = [w for m in self.memories for w in (self.handle, m.number, m.kind.address, m.kind.size)]
        self._words[:] = [self.memory, number, *rows]
        self.text = Text(f"TilewrightDevice(id={number})")
        self.own_memories = handle_list([m.handle for m in self.memories])


class _Client:
    """The one client of a process: handles and texts that live as long as that."""

    def __init__(self) -> None:
        target = default_target()
        self.name = Text(PLATFORM)
        # JAX's persistent cache tells programs apart by this: another state of the sources, another machine
        self.version = Text(f"tilewright {__version__} {source_digest(_PACKAGES)} {target.key}")
        self.kind = Text(f"{platform.machine()} with {os.cpu_count()} cores")
        self.no_values = Named({})
        self.client, self.topology = living.new(self), living.new(self)
        self.devices = tuple(map(Device, range(positive_setting("TILEWRIGHT_DEVICES") or 1)))
        self.by_handle = {d.handle: d for d in self.devices}
        self.memories = {m.handle: m for d in self.devices for m in d.memories}
        state.words[records.DEVICE] = self.devices[0].handle
        self.device_list = handle_list([d.handle for d in self.devices])
        self.memory_list = handle_list([*self.memories])


@functools.cache
def client() -> _Client:
    """The client of this process."""
    return _Client()


def device_of(device: int | None) -> Device:
    """The device of a handle; the first one for None. Raises Problem for what is none."""
    own = client()
    found = own.by_handle.get(device) if device else own.devices[0]
    if found is None:
        raise Problem("INVALID_ARGUMENT", "expected one of Tilewright's devices, found another")
    return found


def memory_of(device: int | None, memory: int | None) -> Memory:
    """The memory of a handle; where there is none, a device's default one. Raises Problem for what is none of this client's."""
    found = client().memories.get(memory) if memory else device_of(device).memories[0]
    if found is None:
        raise Problem("INVALID_ARGUMENT", "expected a memory of Tilewright's devices, found another")
    return found


# ---------------------------------------------------------------- plugin and client

_ATTRIBUTES: list[Named] = []


def _nothing(a: Any) -> None:
    pass


def _attributes(a: Any) -> None:
    if not _ATTRIBUTES:
        from jaxlib.mlir.dialects import stablehlo

        # jaxlib writes programs for the oldest of its own versions: what is read here is what it writes itself
        current, least = (
            [int(n) for n in f().split(".")] for f in (stablehlo.get_current_version, stablehlo.get_minimum_version)
        )
        _ATTRIBUTES.append(Named({"stablehlo_current_version": current, "stablehlo_minimum_version": least}))
    a.attributes, a.count = _ATTRIBUTES[0].address, _ATTRIBUTES[0].count


def _create(a: Any) -> None:
    a.client = client().client


def _close(a: Any) -> None:
    close()


def close() -> None:
    """Waits for programs that call back and have begun; then loops that run end, and what has not begun fails."""
    if not threads.is_own():
        while threads.calling_back():
            time.sleep(1e-3)
        interrupts.end_loops(True)
        while threads.unfinished():
            time.sleep(1e-3)
    functions().stop()
    interrupts.end_loops(False)


atexit.register(close)


def _texts(name: str) -> Callable[[Any], None]:
    def give(a: Any) -> None:
        getattr(client(), name).give(a)

    return give


def _number(field: str, value: int | bool) -> Callable[[Any], None]:
    def give(a: Any) -> None:
        setattr(a, field, value)

    return give


def _handle(field: str, name: str) -> Callable[[Any], None]:
    def give(a: Any) -> None:
        setattr(a, field, getattr(client(), name))

    return give


def _list(field: str, name: str) -> Callable[[Any], None]:
    def give(a: Any) -> None:
        handles = getattr(client(), name)
        setattr(a, field, ctypes.addressof(handles))
        a.count = len(handles)

    return give


def _of_device(field: str, name: str, given: str = "device") -> Callable[[Any], None]:
    """What a device or a memory, the argument's field `given`, has under a name; `text` and lists are told so."""

    def give(a: Any) -> None:
        handle = getattr(a, given)
        value = getattr(memory_of(None, handle) if given == "memory" else device_of(handle), name)
        if isinstance(value, Text):
            value.give(a)
        elif isinstance(value, int):
            setattr(a, field, value)
        else:
            setattr(a, field, ctypes.addressof(value))
            a.count = len(value)

    return give


def _no_attributes(a: Any) -> None:
    a.attributes, a.count = client().no_values.address, 0


def _look_up(a: Any) -> None:
    devices = client().devices
    if not 0 <= a.id < len(devices):
        raise Problem("INVALID_ARGUMENT", f"expected a device from 0 to {len(devices) - 1}, found {a.id}")
    a.device = devices[a.id].handle


def _assignment(a: Any) -> None:
    wanted, there = a.replicas * a.partitions, len(client().devices)
    if wanted > there or a.count < wanted:
        raise Problem("INVALID_ARGUMENT", f"{there} devices have no place for {a.replicas} replicas of {a.partitions} partitions")
    (ctypes.c_int * wanted).from_address(a.assignment)[:] = range(wanted)


def _no_topology(a: Any) -> None:
    raise Problem("UNIMPLEMENTED", "topology not implemented for tilewright: programs are compiled for the devices of a process")


def _memory_stats(a: Any) -> None:
    raise Problem("UNIMPLEMENTED", "Tilewright does not count its device's memory: that is the process's own")


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _drop(handle: int) -> None:
    living.drop(handle)


_drop_serial = _DELETER(_drop)
_DROP_SERIAL = ctypes.cast(_drop_serial, ctypes.c_void_p).value


def serial(a: Any, data: bytes) -> None:
    """Gives bytes that jaxlib drops by the function which it gets with them."""
    text = Text(data)
    a.bytes, a.bytes_size, a.holder, a.deleter = text.address, text.size, living.new(text), _DROP_SERIAL


def _serialize_topology(a: Any) -> None:
    own = client()
    serial(a, hashlib.sha256(bytes(own.version._memory)).digest())


FUNCTIONS: dict[str, Callable[[Any], None]] = {
    "Plugin_Initialize": _nothing,
    "Plugin_Attributes": _attributes,
    "Client_Create": _create,
    "Client_Destroy": _close,
    "Client_PlatformName": _texts("name"),
    "Client_PlatformVersion": _texts("version"),
    "Client_ProcessIndex": _number("index", 0),
    "Client_Devices": _list("devices", "device_list"),
    "Client_AddressableDevices": _list("devices", "device_list"),
    "Client_LookupDevice": _look_up,
    "Client_LookupAddressableDevice": _look_up,
    "Client_AddressableMemories": _list("memories", "memory_list"),
    "Client_DefaultDeviceAssignment": _assignment,
    "Client_TopologyDescription": _handle("topology", "topology"),
    "DeviceDescription_Id": _of_device("id", "number", "description"),
    "DeviceDescription_ProcessIndex": _number("index", 0),
    "DeviceDescription_Attributes": _no_attributes,
    "DeviceDescription_Kind": _texts("kind"),
    "DeviceDescription_DebugString": _of_device("text", "text", "description"),
    "DeviceDescription_ToString": _of_device("text", "text", "description"),
    "Device_GetDescription": _of_device("description", "handle"),
    "Device_IsAddressable": _number("is_addressable", True),
    "Device_LocalHardwareId": _of_device("id", "number"),
    "Device_AddressableMemories": _of_device("memories", "own_memories"),
    "Device_DefaultMemory": _of_device("memory", "memory"),
    "Device_MemoryStats": _memory_stats,
    "Memory_Id": _of_device("id", "number", "memory"),
    "Memory_Kind_Id": _of_device("id", "which", "memory"),
    "Memory_DebugString": _of_device("text", "text", "memory"),
    "Memory_ToString": _of_device("text", "text", "memory"),
    "Memory_AddressableByDevices": _of_device("devices", "own_device", "memory"),
    "TopologyDescription_Create": _no_topology,
    "TopologyDescription_Destroy": _nothing,
    "TopologyDescription_PlatformName": _texts("name"),
    "TopologyDescription_PlatformVersion": _texts("version"),
    "TopologyDescription_GetDeviceDescriptions": _list("descriptions", "device_list"),
    "TopologyDescription_Serialize": _serialize_topology,
    "TopologyDescription_Attributes": _no_attributes,
}
