"""The C of a program's call: its header, its tables, and `call.c` behind them.

    header(data, "model")            model.h: what a C or C++ program includes
    call_source(data, "model", …)    model.c: tables and the call; kernels are functions of other files
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from codegen.launcher import launch
from codegen.ship.call_data import CallData, Tensor
from codegen.ship.errors import ExportError
from codegen.ship.objects import symbol_of

__all__ = ["call_source", "constants_assembly", "constants_source", "header"]

_CALL = Path(__file__).with_name("call.c")
_KINDS: dict[type, int] = {
    launch.Step: 0, launch.Copy: 1, launch.Exchange: 2, launch.Jump: 3, launch.Unless: 4, launch.Select: 5,
}  # fmt: skip
_HOW = ("direct", "again", "kept", "literal")

_HEADER = """\
/* {title}

   How to call it, in C11 or C++11 and later (on Windows with `_aligned_malloc(bytes, 64)`):

     size_t bytes = {p}_workspace_bytes(1);
     void *workspace = aligned_alloc(64, bytes);
     const void *arguments[] = {{...}};
     void *results[] = {{...}};
     int code = {p}_run(arguments, results, workspace, bytes, NULL);
     if (code != {P}_DONE) fputs({p}_message(code), stderr);

   Arrays are dense and row-major, in the machine's byte order; each starts at a multiple of its tensor's `alignment`.
   No result overlaps another result, an argument or the workspace. The library keeps no state: threads may call it at the same
   time, each with its own workspace and results. With threads (`{p}_threads_start`) a call shares its work among them; a call
   that finds them busy with another one goes alone.

{signature} */

#ifndef {P}_H
#define {P}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

/* What a call returns. */
#define {P}_DONE 0
#define {P}_ERROR_NULL 1       /* an argument, a result or the workspace is a null pointer */
#define {P}_ERROR_ALIGNMENT 2  /* an argument or a result is not at a multiple of its alignment */
#define {P}_ERROR_WORKSPACE 3  /* the workspace is too small for the threads, or not at a multiple of 64 */
#define {P}_STOPPED 4          /* the caller's `stop` ended the run: the results are not complete */

#define {P}_ARGUMENTS {arguments}
#define {P}_RESULTS {results}
#define {P}_STEPS {steps}
{constants}
typedef struct {{
    const char *name;              /* the program's, for people */
    const char *element;           /* the type of an element as StableHLO spells it */
    int rank;
    const int64_t *shape;          /* elements along each dimension */
    const int64_t *strides_bytes;  /* bytes from one element to the next, along each dimension */
    size_t size_bytes;
    size_t alignment;
}} {p}_tensor;

/* Worker threads: as many as `threads` less the caller's. NULL where there is no memory; fewer where the system refuses some. */
typedef struct {p}_threads {p}_threads;
{p}_threads *{p}_threads_start(int threads);
int {p}_threads_count(const {p}_threads *threads);  /* with the caller's; 1 for NULL */
void {p}_threads_stop({p}_threads *threads);        /* when no call uses them any more */

/* The bytes of a workspace for calls on so many threads; it starts at a multiple of 64 and need not be cleared. */
size_t {p}_workspace_bytes(int threads);

/* One call. `threads` may be NULL. Returns one of the codes above. */
int {p}_run(const void *const *arguments, void *const *results, void *workspace, size_t workspace_bytes, {p}_threads *threads);

/* The same with more to say; what is NULL is left out. */
typedef struct {{
    const void *const *arguments;
    void *const *results;
    const void *const *constants;  /* in the place of the library's own, each at a multiple of 64 */
    void *workspace;
    size_t workspace_bytes;
    {p}_threads *threads;
    int (*stop)(void *context);    /* asked every 50 ms in loops, in the caller's thread; not 0 ends the run */
    void *stop_context;
    int64_t *step_nanoseconds;     /* {P}_STEPS of them, to which the time of each step is added */
}} {p}_call;
int {p}_run_call(const {p}_call *call);

const char *{p}_message(int code);
const {p}_tensor *{p}_arguments(int *count);
const {p}_tensor *{p}_results(int *count);
const char *{p}_interface(void);  /* a name of types, shapes, constants and code: equal for equal programs */

#ifdef __cplusplus
}}
#endif

#endif
"""


def header(data: CallData, name: str) -> str:
    """The text of NAME.h. Raises ExportError for a name that C has no use for."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise ExportError(f"a C library's name begins with a letter and has letters, digits and _: found {name!r}")
    upper = name.upper()
    lines = []
    for what, tensors in (("argument", data.arguments), ("result", data.results)):
        for k, t in enumerate(tensors):
            lines.append(f"   {what} {k}: {_shown(t)}")
    macros = []
    for what, tensors in (("ARGUMENT", data.arguments), ("RESULT", data.results)):
        for k, t in enumerate(tensors):
            macros.append(f"#define {upper}_{what}{k}_ELEMENTS {t.size_bytes // t.item_bytes}")
            macros.append(f"#define {upper}_{what}{k}_BYTES {t.size_bytes}")
            macros.append(f"#define {upper}_{what}{k}_ALIGNMENT {t.alignment}")
    title = f"A compiled program, for {data.target.name} ({data.target.architecture}, {data.target.system})."
    return _HEADER.format(
        p=name, P=upper, title=title, signature="\n".join(lines), arguments=len(data.arguments), results=len(data.results),
        steps=len(data.steps), constants="\n".join([*macros, ""]),
    )  # fmt: skip


def _shown(t: Tensor) -> str:
    shape = "x".join(map(str, t.shape)) or "scalar"
    return f"{_plain(t.name)}, {_plain(t.element)}, {shape}, {t.size_bytes} bytes at multiples of {t.alignment}"


def _plain(text: str) -> str:
    """A name for a comment or a string: what could end either is left out."""
    return re.sub(r"[^A-Za-z0-9_.<>,: ]", "_", text)


def call_source(data: CallData, name: str, own_constants: bool, is_alone: bool = False) -> str:
    """The text of the file with the call. Without `own_constants` every call has to bring them.

    `is_alone`: the other files are C, too, and nothing but the header's functions is for others to see.
    """
    upper = name.upper()
    linkage = "static __attribute__((unused))" if is_alone else '__attribute__((visibility("hidden")))'
    lines = [
        f'#include "{name}.h"', "",
        f"#define TW(word) {name}_##word",
        "#ifdef _WIN32", "#define TW_API __declspec(dllexport)", "#else",
        '#define TW_API __attribute__((visibility("default")))', "#endif",
        f"#define TW_INTERRUPTED_LINKAGE {linkage}",
        "#define TW_DONE 0",
        *(f"#define TW_{c} {upper}_{c}" for c in ("ERROR_NULL", "ERROR_ALIGNMENT", "ERROR_WORKSPACE", "STOPPED")),
        f"#define TW_ARGUMENTS {len(data.arguments)}", f"#define TW_RESULTS {len(data.results)}",
        f"#define TW_MEMORIES {data.memories}", f"#define TW_STEPS {len(data.steps)}", f"#define TW_FIXED {len(data.fixed)}",
        f"#define TW_PLACES {len(data.places)}", f"#define TW_COPIES {len(data.copies)}",
        f"#define TW_MOST_BUFFERS {max((len(s.buffers) for s in data.steps), default=0)}",
        f"#define TW_ARENA {data.arena_bytes}", f"#define TW_SCRATCH ((size_t){data.scratch_bytes})",
        f"#define TW_PARALLEL {int(data.parallel)}", "",
        "typedef void tw_entry(int64_t begin, int64_t end, void **buffers, void *scratch);",
        "enum { TW_KERNEL, TW_COPY, TW_EXCHANGE, TW_JUMP, TW_UNLESS, TW_SELECT };",
        "enum { TW_DIRECT, TW_AGAIN, TW_KEPT, TW_LITERAL };",
        "typedef struct {",
        "    int32_t kind, is_long;",
        "    int64_t tasks, chunk;    /* of a kernel */",
        "    int64_t first;           /* bytes to copy, the step to go on at, or the number of branches */",
        "    tw_entry *entry;",
        "    int32_t buffers, count;  /* its memories in tw_slots; ~slot is where a memory was at first */",
        "} tw_step;", "",
    ]  # fmt: skip
    hidden = "" if is_alone else '__attribute__((visibility("hidden"))) '
    keys = dict.fromkeys(s.kernel.key for s in data.steps if isinstance(s, launch.Step))
    lines += [f"{hidden}void {symbol_of(key)}(int64_t begin, int64_t end, void **buffers, void *scratch);" for key in keys]
    slots: list[int] = []
    rows = []
    for s, what in zip(data.steps, data.names, strict=True):
        rows.append(f"    {_row(s, len(slots))},  /* {_plain(what)} */")
        settled = s.settled if isinstance(s, launch.Copy) else ()
        slots += [~slot if k in settled else slot for k, slot in enumerate(s.buffers)]
    lines += ["static const tw_step tw_steps[] = {", *(rows or ["    {0}"]), "};"]
    lines.append(_numbers("tw_slots", slots))
    lines.append(_numbers("tw_given", data.given))
    made = [f"{{{_HOW.index(how)}, {at}}}" for how, at in data.made]
    lines.append(_rows("struct { int32_t how, from; }", "tw_made", made))
    lines.append(_rows("struct { int32_t slot, at; }", "tw_fixed", [f"{{{s}, {k}}}" for s, k in data.fixed]))
    lines.append(_rows("struct { int32_t slot; int64_t at; }", "tw_places", [f"{{{s}, {at}}}" for s, at in data.places]))
    lines.append(
        _rows("struct { int32_t slot; int64_t at, bytes; }", "tw_copies", [f"{{{s}, {at}, {n}}}" for s, at, n in data.copies])
    )
    lines += _tensors("tw_arguments", name, data.arguments) + _tensors("tw_results", name, data.results)
    lines.append(f'static const char tw_interface[] = "{data.digest}";')
    lines += _constants(data, name, own_constants)
    return "\n".join([*lines, "", _CALL.read_text("utf-8")])


def _row(s: launch.Instruction, start: int) -> str:
    entry, tasks, chunk, first, is_long = "0", 0, 1, 0, 0
    if isinstance(s, launch.Step):
        entry, tasks, chunk, is_long = symbol_of(s.kernel.key), s.tasks, s.chunk, int(s.is_long)
    elif isinstance(s, launch.Copy):
        first = s.size_bytes
    elif isinstance(s, launch.Jump | launch.Unless):
        first = s.target
    elif isinstance(s, launch.Select):
        first = s.count
    return f"{{{_KINDS[type(s)]}, {is_long}, {tasks}, {chunk}, {first}, {entry}, {start}, {len(s.buffers)}}}"


def _numbers(name: str, values: Iterable[int]) -> str:
    return f"static const int32_t {name}[] = {{{', '.join(map(str, values)) or '0'}}};"


def _rows(kind: str, name: str, rows: Sequence[str]) -> str:
    return f"static const {kind} {name}[] = {{{', '.join(rows) or '{0}'}}};"


def _tensors(table: str, name: str, tensors: Sequence[Tensor]) -> list[str]:
    lines = []
    rows = []
    for k, t in enumerate(tensors):
        for what, values in (("shape", t.shape), ("strides", t.strides_bytes)):
            lines.append(f"static const int64_t {table}_{what}{k}[] = {{{', '.join(map(str, values)) or '0'}}};")
        rows.append(
            f'{{"{_plain(t.name)}", "{_plain(t.element)}", {len(t.shape)}, {table}_shape{k}, {table}_strides{k}, '
            f"{t.size_bytes}, {t.alignment}}}"
        )
    return [*lines, f"static const {name}_tensor {table}[] = {{{', '.join(rows) or '{0}'}}};"]


def _constants(data: CallData, name: str, own: bool) -> list[str]:
    if not own or not data.constants:
        return ["static const void *tw_constant(int32_t number) { (void)number; return NULL; }"]
    offsets = _offsets(data)
    return [
        f'extern const unsigned char {name}_constants[] __attribute__((visibility("hidden")));',
        f"static const int64_t tw_constant_at[] = {{{', '.join(map(str, offsets[:-1]))}}};",
        f"static const void *tw_constant(int32_t number) {{ return {name}_constants + tw_constant_at[number]; }}",
    ]


def _offsets(data: CallData) -> list[int]:
    offsets = [0]
    for a in data.constants:
        offsets.append(offsets[-1] + -(-a.nbytes // 64) * 64)
    return offsets


def _blob(data: CallData) -> bytes:
    parts = []
    for a in data.constants:
        part = a.tobytes()
        parts.append(part + bytes(-len(part) % 64))
    return b"".join(parts)


def constants_assembly(data: CallData, folder: Path, name: str) -> Path | None:
    """A file for the assembler with all constants, from a file of their bytes beside it; None where there are none."""
    if not data.constants:
        return None
    (folder / "constants.bin").write_bytes(_blob(data))
    symbol = f"_{name}_constants" if data.target.system == "Darwin" else f"{name}_constants"
    section, hidden, end = {
        "Darwin": (".section __TEXT,__const", [f".private_extern {symbol}"], []),
        "Windows": ('.section .rdata,"dr"', [], []),
        "Linux": ('.section .rodata,"a"', [f".hidden {symbol}"], ['.section .note.GNU-stack,"",%progbits']),
    }[data.target.system]
    where = str(folder / "constants.bin").replace("\\", "/")
    text = [section, ".balign 64", f".globl {symbol}", *hidden, f"{symbol}:", f'.incbin "{where}"', *end]
    path = folder / "constants.S"
    path.write_text("\n".join([*text, ""]), "utf-8")
    return path


def constants_source(data: CallData, name: str) -> str:
    """The constants as C, for whoever has a compiler and nothing else; the bytes as numbers."""
    blob = _blob(data)
    lines = [f"_Alignas(64) const unsigned char {name}_constants[] = {{"]
    lines += ["    " + ",".join(map(str, blob[k : k + 32])) + "," for k in range(0, len(blob), 32)]
    return "\n".join([*lines, "};", ""])
