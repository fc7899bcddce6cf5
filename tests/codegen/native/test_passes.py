"""LLVM's passes, as they are chosen for a module."""

import llvmlite.binding as llvm
import pytest

import codegen
import hlo
from codegen.forks import compiling
from codegen.kernel.straight import SHORT_ROW
from codegen.native import passes
from codegen.native.jit import kernel_ir
from codegen.native.lower import emit_kernel, emit_object
from codegen.target import NAMED_TARGETS, Target

X86 = Target.from_features("x86_64-unknown-linux-gnu", *NAMED_TARGETS["avx2"])


def _loop_of(places: int) -> str:
    """A function whose loop copies numbers at so many places, apart by a number that it is given."""
    lines = []
    for k in range(places // 2):
        lines += [
            f"%a{k} = mul i64 %i, {2 * k + 3}", f"%b{k} = add i64 %a{k}, {k}", f"%c{k} = mul i64 %b{k}, %n",
            f"%p{k} = getelementptr float, ptr %x, i64 %c{k}", f"%v{k} = load float, ptr %p{k}",
            f"%q{k} = getelementptr float, ptr %y, i64 %c{k}", f"store float %v{k}, ptr %q{k}",
        ]  # fmt: skip
    body = "\n".join(lines)
    return f"""target triple = "{X86.triple}"
    define void @copy(ptr %x, ptr %y, i64 %n) {{
    entry:
      br label %loop
    loop:
      %i = phi i64 [0, %entry], [%next, %loop]
      {body}
      %next = add i64 %i, 1
      %ends = icmp eq i64 %next, 64
      br i1 %ends, label %end, label %loop
    end:
      ret void
    }}"""


@pytest.mark.parametrize("places", [8, 2 * passes.MANY_PLACES])
def test_loops_of_many_places_are_emitted_without_strength_reduction(places):
    def made(emit, *more):
        module = passes.parsed_for(_loop_of(places), X86)
        module.data_layout = passes.data_layout(X86)
        return emit(module, X86, *more)

    with compiling:
        passes.initialise()
        reduced, kernel, after = made(emit_object), made(emit_kernel, ()), made(emit_object)
        llvm.set_option("test", "-disable-lsr=true")
        try:
            without = made(emit_object)
        finally:
            llvm.set_option("test", "-disable-lsr=false")
    assert after == reduced != without, "the option is as it was"
    assert kernel == (without if places >= passes.MANY_PLACES else reduced)


@pytest.mark.machine("avx2")
@pytest.mark.parametrize("columns", [3, 7, 13, SHORT_ROW])
def test_short_rows_are_stored_without_masks_where_these_are_slow(columns):
    """AVX2's masked stores: a row of three that was scaled took 3.5 times as long as without them on AMD Zen 3."""
    x, row = f"tensor<4096x{columns}xf32>", f"tensor<{columns}xf32>"
    executable = codegen.compile(hlo.parse(f"""func.func @main(%x: {x}, %b: {row}) -> {x} {{
      %r = stablehlo.broadcast_in_dim %b, dims = [1] : ({row}) -> {x}
      %y = stablehlo.add %x, %r : {x}
      return %y : {x} }}"""))
    (kernel,) = executable.kernels

    def has_masks(name):
        target = Target.from_features("x86_64-unknown-linux-gnu", *NAMED_TARGETS[name])
        return "@llvm.masked.store" in kernel_ir(kernel.source, kernel.compiled.signature, target)

    is_short = columns < SHORT_ROW
    assert has_masks("avx512") == is_short, "where masks cost nothing they are there"
    assert not has_masks("avx2")
    assert has_masks("avx512") == is_short, "the option is as it was"
