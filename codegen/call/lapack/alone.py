"""OpenBLAS told to take one thread while the launcher's threads call it side by side."""

from __future__ import annotations

import functools
import hashlib
from typing import Any

from codegen.call.direct import native_function
from codegen.native.lower import publish

__all__ = ["publish_alone"]

# How many are alone now, and above that how many threads OpenBLAS had before: none waits for another. Who comes when the last has
# ended, and has not yet set that many again, finds one thread: that is left as it is, at its own end, too, or it would stay one.
_ALONE = """
target triple = "{triple}"
@state = internal global i64 0
declare i32 @tilewright_blas_threads()
declare void @tilewright_set_blas_threads(i32)
define void @SYMBOL(i1 %begins) {{
entry:
  br i1 %begins, label %begin, label %end
begin:
  %found = load atomic i64, ptr @state monotonic, align 8
  %others = and i64 %found, 4294967295
  %is_first = icmp eq i64 %others, 0
  br i1 %is_first, label %first, label %further
first:
  %threads = call i32 @tilewright_blas_threads()
  %wide = zext i32 %threads to i64
  %high = shl i64 %wide, 32
  %new = or i64 %high, 1
  %pair = cmpxchg ptr @state, i64 %found, i64 %new seq_cst seq_cst, align 8
  %done = extractvalue {{ i64, i1 }} %pair, 1
  %has_threads = icmp ugt i32 %threads, 1
  br i1 %done, label %made, label %begin
made:
  br i1 %has_threads, label %limit, label %return
limit:
  call void @tilewright_set_blas_threads(i32 1)
  ret void
further:
  %more = add i64 %found, 1
  %pair_2 = cmpxchg ptr @state, i64 %found, i64 %more seq_cst seq_cst, align 8
  %done_2 = extractvalue {{ i64, i1 }} %pair_2, 1
  br i1 %done_2, label %return, label %begin
end:
  %now = load atomic i64, ptr @state monotonic, align 8
  %count = and i64 %now, 4294967295
  %is_last = icmp eq i64 %count, 1
  %less = sub i64 %now, 1
  %left = select i1 %is_last, i64 0, i64 %less
  %pair_3 = cmpxchg ptr @state, i64 %now, i64 %left seq_cst seq_cst, align 8
  %done_3 = extractvalue {{ i64, i1 }} %pair_3, 1
  br i1 %done_3, label %left_it, label %end
left_it:
  %before = lshr i64 %now, 32
  %had_threads = icmp ugt i64 %before, 1
  %restores = and i1 %is_last, %had_threads
  br i1 %restores, label %restore, label %return
restore:
  %narrow = trunc i64 %before to i32
  call void @tilewright_set_blas_threads(i32 %narrow)
  br label %return
return:
  ret void
}}
"""


@functools.cache
def publish_alone(count: int, set_count: int) -> tuple[int, Any]:
    """Publishes `@alone`, which has OpenBLAS take one thread between two calls of it: where it is, and what keeps its code."""
    publish("tilewright_blas_threads", count)
    publish("tilewright_set_blas_threads", set_count)
    symbol = f"tilewright_{hashlib.sha256(_ALONE.encode()).hexdigest()[:16]}"
    entry, code = native_function(_ALONE.replace("SYMBOL", symbol), symbol)
    publish("tilewright_alone", entry)
    return entry, code
