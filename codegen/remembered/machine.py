"""The machine description that was measured last, kept in the user's cache folder."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from hashlib import sha256

from codegen.native import object_cache
from codegen.target import Target, default_target
from tiling.machine import Machine

__all__ = ["calibrated_machine", "machine_for", "remember_machine"]


def remember_machine(machine: Machine) -> None:
    """Keeps a description for `calibrated_machine`."""
    object_cache.write(_key(), json.dumps(asdict(machine)).encode())


def calibrated_machine() -> Machine:
    """The remembered result of `calibrate` on this machine, else what the system tells; what TILEWRIGHT_MACHINE says is so."""
    payload = object_cache.read(_key())
    target = default_target()
    detected = machine_for(target, Machine.detect())
    if payload is None:
        return detected
    try:
        known = json.loads(payload)
        kinds = {f.name: type(getattr(detected, f.name)) for f in fields(Machine)}
        found = Machine(**{name: kinds[name](value) for name, value in known.items()})
    except (ValueError, TypeError, KeyError):
        return detected
    # The rates hold for another number of threads, the count of cores does not; what is allowed is this process's business.
    return replace(found, cores=detected.cores, excess_precision=detected.excess_precision).described()


def machine_for(target: Target, machine: Machine) -> Machine:
    """A machine with the registers and instructions of the target that kernels are compiled for, which may be less than it has.

    What TILEWRIGHT_MACHINE says is so. Raises SettingError for a description that is none.
    """
    return replace(
        machine, vector_bytes=target.vector_bytes, vector_registers=target.vector_registers,
        byte_products=target.byte_products, pair_products=target.pair_products, tile_products=target.tile_products,
    ).described()  # fmt: skip


def _key() -> str:
    return sha256(f"machine 4 {default_target().key}".encode()).hexdigest()
