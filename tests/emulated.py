"""Kernels for 64-bit Arm on any machine: linked by a cross compiler and run under an emulator, where there are both."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from codegen.native import lower
from codegen.native.signature import KernelSignature
from codegen.ship.linkable import emit_linkable
from codegen.target import Target

COMPILER = shutil.which("aarch64-linux-gnu-gcc")
EMULATOR = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
needs_emulator = pytest.mark.skipif(
    not (COMPILER and EMULATOR), reason="needs aarch64-linux-gnu-gcc and qemu-aarch64-static (or qemu-aarch64)"
)

MAIN = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

void kernel_entry(int64_t begin, int64_t end, void **buffers, void *scratch);

/* Calls the kernel with the contents of the files that are named, and writes the last buffer back. */
int main(int count, char **names) {
    void *buffers[16];
    size_t bytes = 0;
    for (int k = 1; k < count; k++) {
        FILE *file = fopen(names[k], "rb");
        if (!file || fseek(file, 0, SEEK_END)) return 2;
        bytes = (size_t)ftell(file);
        rewind(file);
        buffers[k - 1] = malloc(bytes);
        if (fread(buffers[k - 1], 1, bytes, file) != bytes) return 3;
        fclose(file);
    }
    kernel_entry(0, 1, buffers, NULL);
    FILE *out = fopen(names[count - 1], "wb");
    return out && fwrite(buffers[count - 2], 1, bytes, out) == bytes && !fclose(out) ? 0 : 4;
}
"""


def run(
    source: str, signature: KernelSignature, target: Target, arrays: Sequence[np.ndarray], folder: Path, cpu: str = "max"
) -> np.ndarray:
    """What a kernel for an Arm CPU leaves in the last of its buffers, which begin as `arrays`, on the emulator's `cpu`."""
    assert COMPILER and EMULATOR
    module = lower.build(source, "<kernel>", signature, "kernel_entry", target)
    (folder / "kernel.o").write_bytes(emit_linkable(module, target))
    (folder / "main.c").write_text(MAIN)
    command = [COMPILER, "-static", "-O1", "main.c", "kernel.o", "-o", "main", "-lm"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    names = [f"buffer_{k}" for k in range(len(arrays))]
    for name, array in zip(names, arrays, strict=True):
        (folder / name).write_bytes(array.tobytes())
    subprocess.run([EMULATOR, "-cpu", cpu, "./main", *names], cwd=folder, check=True, capture_output=True)
    return np.frombuffer((folder / names[-1]).read_bytes(), arrays[-1].dtype).reshape(arrays[-1].shape)
