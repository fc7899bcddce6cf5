"""The client, its one device with one memory, and their topology: what there is, told to jaxlib."""

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

from codegen.native.source_digest import source_digest
from codegen.target import default_target
from tilewright import __version__
from tilewright.jax.platform_name import PLATFORM
from tilewright.pjrt import records, threads
from tilewright.pjrt.handles import Problem, Text, living
from tilewright.pjrt.layout import NamedValue
from tilewright.pjrt.native import functions, state

__all__ = ["FUNCTIONS", "MEMORY_KIND", "check_device", "client", "close", "int64s", "named_values", "serial"]

MEMORY_KIND = "device"  # jaxlib takes it for granted where it makes tokens
_PACKAGES = ("hlo", "indexing", "tiling", "codegen", "interp", "tilewright")
_STRING, _INT64, _INT64S, _FLOAT, _BOOL = range(5)


def int64s(values: Any) -> np.ndarray:
    """Numbers as C has them: an array that must live as long as they are read."""
    return np.array(list(values), np.int64)


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


class _Client:
    """The one client of a process: handles and texts that live as long as that."""

    def __init__(self) -> None:
        target = default_target()
        self.name = Text(PLATFORM)
        # JAX's persistent cache tells programs apart by this: another state of the sources, another machine
        self.version = Text(f"tilewright {__version__} {source_digest(_PACKAGES)} {target.key}")
        self.kind = Text(f"{platform.machine()} with {os.cpu_count()} cores")
        self.device_text = Text("TilewrightDevice(id=0)")
        self.memory_kind = Text(MEMORY_KIND)
        self.memory_text = Text(f"TilewrightMemory(id=0, kind={MEMORY_KIND})")
        self.no_values = Named({})
        self.client, self.device, self.description, self.memory, self.topology = (living.new(self) for _ in range(5))
        state.words[records.KIND_TEXT], state.words[records.KIND_SIZE] = self.memory_kind.address, self.memory_kind.size
        state.words[records.DEVICE], state.words[records.SPACE] = self.device, self.memory
        self.devices, self.memories, self.descriptions = (
            (ctypes.c_uint64 * 1)(handle) for handle in (self.device, self.memory, self.description)
        )


@functools.cache
def client() -> _Client:
    """The client of this process."""
    return _Client()


def check_device(device: int | None, memory: int | None) -> None:
    """Raises Problem for a device or a memory that is not the client's own; None stands for that."""
    own = client()
    if device not in (None, own.device) or memory not in (None, own.memory):
        raise Problem("INVALID_ARGUMENT", "expected Tilewright's one device and its memory, found another")


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
    """Waits for what Python has to do, callbacks among it; what else has not begun fails, and loops that run end."""
    while threads.unfinished() and not threads.is_own():
        time.sleep(1e-3)
    functions().stop()


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
        setattr(a, field, ctypes.addressof(getattr(client(), name)))
        a.count = 1

    return give


def _no_attributes(a: Any) -> None:
    a.attributes, a.count = client().no_values.address, 0


def _look_up(a: Any) -> None:
    if a.id != 0:
        raise Problem("INVALID_ARGUMENT", f"expected device 0, found {a.id}")
    a.device = client().device


def _assignment(a: Any) -> None:
    if a.replicas * a.partitions != 1 or a.count < 1:
        raise Problem("UNIMPLEMENTED", f"one device has no place for {a.replicas} replicas of {a.partitions} partitions")
    ctypes.c_int.from_address(a.assignment).value = 0


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
    "Client_Devices": _list("devices", "devices"),
    "Client_AddressableDevices": _list("devices", "devices"),
    "Client_LookupDevice": _look_up,
    "Client_LookupAddressableDevice": _look_up,
    "Client_AddressableMemories": _list("memories", "memories"),
    "Client_DefaultDeviceAssignment": _assignment,
    "Client_TopologyDescription": _handle("topology", "topology"),
    "DeviceDescription_Id": _number("id", 0),
    "DeviceDescription_ProcessIndex": _number("index", 0),
    "DeviceDescription_Attributes": _no_attributes,
    "DeviceDescription_Kind": _texts("kind"),
    "DeviceDescription_DebugString": _texts("device_text"),
    "DeviceDescription_ToString": _texts("device_text"),
    "Device_GetDescription": _handle("description", "description"),
    "Device_IsAddressable": _number("is_addressable", True),
    "Device_LocalHardwareId": _number("id", 0),
    "Device_AddressableMemories": _list("memories", "memories"),
    "Device_DefaultMemory": _handle("memory", "memory"),
    "Device_MemoryStats": _memory_stats,
    "Memory_Id": _number("id", 0),
    "Memory_Kind_Id": _number("id", 0),
    "Memory_DebugString": _texts("memory_text"),
    "Memory_ToString": _texts("memory_text"),
    "Memory_AddressableByDevices": _list("devices", "devices"),
    "TopologyDescription_Create": _handle("topology", "topology"),
    "TopologyDescription_Destroy": _nothing,
    "TopologyDescription_PlatformName": _texts("name"),
    "TopologyDescription_PlatformVersion": _texts("version"),
    "TopologyDescription_GetDeviceDescriptions": _list("descriptions", "descriptions"),
    "TopologyDescription_Serialize": _serialize_topology,
    "TopologyDescription_Attributes": _no_attributes,
}
