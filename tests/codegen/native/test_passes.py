"""LLVM's passes, as they are chosen for a module."""

import llvmlite.binding as llvm
import pytest

from codegen.forks import compiling
from codegen.native import passes
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
