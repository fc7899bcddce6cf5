"""Models of timm and transformers through `torch.compile(model, backend="tilewright")`: error and time against others.

    python benchmarks/torch_models.py                     forward and training step of all models, as a table
    python benchmarks/torch_models.py --small bert unet   some of them, with short inputs

Needs the extra `torch`, and timm and transformers beside it. Weights are random: nothing is downloaded. Each engine runs in a
process of its own, in turns with torch's eager mode: medians of `--runs` calls. The error is the largest difference to the same
model in double precision by the largest magnitude there, over the results and, for a training step, the gradients of all
parameters; eager mode's own error stands beside it (a normalisation over few elements has a large one).

With `--one-thread` each engine has one, and what is timed is the processor's time. Each engine takes turns with eager mode in its
own process, and the table has its time over eager mode's there: that holds on a machine with other work.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

ENGINES = ("tilewright", "inductor", "jax")


def _timm(name: str, size: int = 224, **options: Any) -> Callable[[Any, bool], tuple[Any, dict[str, Any]]]:
    def make(torch: Any, small: bool) -> tuple[Any, dict[str, Any]]:
        import timm

        side = 64 if small and size > 64 else size
        more = {"img_size": side} if options.get("sized") else {}
        given = {k: v for k, v in options.items() if k != "sized"}
        return timm.create_model(name, pretrained=False, num_classes=100, **given, **more), {"x": torch.randn(1, 3, side, side)}

    return make


def _transformer(kind: str) -> Callable[[Any, bool], tuple[Any, dict[str, Any]]]:
    def make(torch: Any, small: bool) -> tuple[Any, dict[str, Any]]:
        import transformers as t

        n = 16 if small else 128
        layers, width, heads, words = (2, 64, 4, 200) if small else (4, 384, 6, 8000)
        ids = torch.randint(0, words, (1, n))
        common = {"vocab_size": words, "num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads}
        none = {"use_cache": False}
        models: dict[str, Callable[[], Any]] = {
            "bert": lambda: t.BertModel(t.BertConfig(**common, intermediate_size=4 * width), add_pooling_layer=False),
            "distilbert": lambda: t.DistilBertModel(
                t.DistilBertConfig(vocab_size=words, n_layers=layers, dim=width, n_heads=heads, hidden_dim=4 * width)
            ),
            "gpt2": lambda: t.GPT2LMHeadModel(
                t.GPT2Config(vocab_size=words, n_layer=layers, n_embd=width, n_head=heads, n_positions=256, **none)
            ),
            "llama": lambda: t.LlamaForCausalLM(
                t.LlamaConfig(**common, intermediate_size=3 * width, num_key_value_heads=heads // 2, **none)
            ),
        }
        return models[kind](), {"input_ids": ids}

    return make


def _unet(torch: Any, small: bool) -> tuple[Any, dict[str, Any]]:
    nn = torch.nn

    def double(a: int, b: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(4, b), nn.SiLU(),
            nn.Conv2d(b, b, 3, padding=1), nn.GroupNorm(4, b), nn.SiLU(),
        )

    class UNet(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, width: int = 16) -> None:
            super().__init__()
            self.down = nn.ModuleList([double(3, width), double(width, 2 * width), double(2 * width, 4 * width)])
            self.up = nn.ModuleList([nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)])
            self.join = nn.ModuleList([double(4 * width, 2 * width), double(2 * width, width)])
            self.last = nn.Conv2d(width, 2, 1)

        def forward(self, x: Any) -> Any:
            kept = []
            for k, stage in enumerate(self.down):
                x = stage(x if k == 0 else nn.functional.max_pool2d(x, 2))
                kept.append(x)
            for up, join, skip in zip(self.up, self.join, kept[-2::-1], strict=True):
                x = join(torch.cat([up(x), skip], 1))
            return self.last(x)

    return UNet(), {"x": torch.randn(1, 3, *((32, 32) if small else (128, 128)))}


def _recurrent(torch: Any, small: bool) -> tuple[Any, dict[str, Any]]:
    class Tagger(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, width: int) -> None:
            super().__init__()
            self.words = torch.nn.Embedding(1000, width)
            self.rnn = torch.nn.LSTM(width, width, batch_first=True)
            self.out = torch.nn.Linear(width, 20)

        def forward(self, ids: Any) -> Any:
            return self.out(self.rnn(self.words(ids))[0])

    torch._dynamo.config.allow_rnn = True  # without it torch's tracer leaves recurrent layers to eager mode
    return Tagger(16 if small else 128), {"ids": torch.randint(0, 1000, (4, 6 if small else 32))}


MODELS: dict[str, Callable[[Any, bool], tuple[Any, dict[str, Any]]]] = {
    "resnet18": _timm("resnet18"),
    "mobilenetv3": _timm("mobilenetv3_small_100"),
    "efficientnet": _timm("efficientnet_b0"),
    "convnext": _timm("convnext_atto"),
    "vit": _timm("vit_tiny_patch16_224", sized=True),
    "swin": _timm("swin_tiny_patch4_window7_224", sized=True),
    "mixer": _timm("mixer_s32_224", sized=True),
    "bert": _transformer("bert"),
    "distilbert": _transformer("distilbert"),
    "gpt2": _transformer("gpt2"),
    "llama": _transformer("llama"),
    "unet": _unet,
    "lstm": _recurrent,
}


def tensor_of(result: Any) -> Any:
    """The tensor that a model's result is about."""
    for name in ("logits", "last_hidden_state"):
        if hasattr(result, name):
            return getattr(result, name)
    return result


def made(torch: Any, name: str, small: bool) -> tuple[Any, dict[str, Any]]:
    """A model with random weights and its arguments, the same in every process; dropout is off: its numbers differ."""
    torch.manual_seed(0)
    model, arguments = MODELS[name](torch, small)
    for layer in model.modules():
        if isinstance(layer, torch.nn.Dropout):
            layer.p = 0.0
        if hasattr(layer, "drop_prob"):  # timm's paths that are left out
            layer.drop_prob = 0.0
    with torch.no_grad():
        for p in model.parameters():  # heads that begin at zero would make every result one
            if p.ndim > 1 and not p.any():
                p.normal_(std=0.02)
    return model, arguments


def stepped(torch: Any, model: Any, call: Callable[..., Any], arguments: dict[str, Any]) -> tuple[Any, list[Any]]:
    """(loss, gradients of the parameters) of one training step."""
    model.zero_grad(set_to_none=True)
    loss = tensor_of(call(**arguments)).square().mean()
    loss.backward()
    return loss.detach(), [p.grad for p in model.parameters() if p.grad is not None]


def doubled(torch: Any, model: Any) -> Any:
    """The model in double precision, with parameters of its own."""
    return copy.deepcopy(model).double()


def widened(torch: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments in double precision, whole numbers as they are."""
    return {k: v.double() if v.is_floating_point() else v for k, v in arguments.items()}


def error(torch: Any, found: list[Any], expected: list[Any]) -> float:
    """The largest difference by the largest magnitude."""
    if len(found) != len(expected):
        return float("inf")
    most = max(float(e.abs().max()) for e in expected)
    return max(float((f.double() - e.double()).abs().max()) for f, e in zip(found, expected, strict=True)) / max(most, 1e-30)


def clock() -> float:
    """Seconds: of the processor where there is one thread, else of the wall."""
    return time.process_time() if os.environ.get("TILEWRIGHT_NUM_THREADS") == "1" else time.perf_counter()


def timed(calls: list[Callable[[], Any]], runs: int) -> list[float]:
    """The median seconds of each call, called in turns."""
    spent: list[list[float]] = [[] for _ in calls]
    for _ in range(runs):
        for call, kept in zip(calls, spent, strict=True):
            began = clock()
            call()
            kept.append(clock() - began)
    return [statistics.median(s) for s in spent]


def measured(name: str, engine: str, small: bool, runs: int) -> dict[str, Any]:
    """A row: errors, seconds of eager mode and of the engine, forward and training step, and of the first calls."""
    import torch

    if os.environ.get("TILEWRIGHT_NUM_THREADS") == "1":
        torch.set_num_threads(1)
    if engine == "jax":
        return measured_through_jax(torch, name, small, runs)
    model, arguments = made(torch, name, small)
    if engine == "tilewright":
        from tilewright.torch.backend import backend as compiler
    else:
        compiler = engine  # type: ignore[assignment]
    compiled = torch.compile(model, backend=compiler)
    row: dict[str, Any] = {"model": name, "engine": engine}
    model.eval()
    with torch.no_grad():
        began = time.perf_counter()
        found = tensor_of(compiled(**arguments))
        row["first"] = time.perf_counter() - began
        exact = tensor_of(doubled(torch, model)(**widened(torch, arguments)))
        row["forward_error"] = error(torch, [found], [exact])
        row["eager_error"] = error(torch, [tensor_of(model(**arguments))], [exact])
        row["eager"], row["forward"] = timed([lambda: model(**arguments), lambda: compiled(**arguments)], runs)
    model.train()
    wide = doubled(torch, model)
    exact_loss, exact_gradients = stepped(torch, wide, wide, widened(torch, arguments))
    state = {k: v.clone() for k, v in model.state_dict().items()}
    began = time.perf_counter()
    loss, gradients = stepped(torch, model, compiled, arguments)
    row["first_step"] = time.perf_counter() - began
    row["step_error"] = error(torch, [loss, *gradients], [exact_loss, *exact_gradients])
    model.load_state_dict(state)
    loss, gradients = stepped(torch, model, model, arguments)
    row["eager_step_error"] = error(torch, [loss, *gradients], [exact_loss, *exact_gradients])
    row["eager_step"], row["step"] = timed(
        [lambda: stepped(torch, model, model, arguments), lambda: stepped(torch, model, compiled, arguments)], runs
    )
    return row


def measured_through_jax(torch: Any, name: str, small: bool, runs: int) -> dict[str, Any]:
    """The same with XLA: torchax runs the model's Python under `jax.jit`."""
    import jax
    import torchax

    model, arguments = made(torch, name, small)
    row: dict[str, Any] = {"model": name, "engine": "jax"}
    model.eval()
    with torch.no_grad():
        expected = tensor_of(doubled(torch, model)(**widened(torch, arguments)))
        row["eager_error"] = error(torch, [tensor_of(model(**arguments))], [expected])
    states, function = torchax.extract_jax(model)
    given = {k: jax.numpy.asarray(v.numpy()) for k, v in arguments.items()}

    def forward(states: Any, given: Any) -> Any:
        return tensor_of(function(states, (), given))

    call = jax.jit(forward)
    began = time.perf_counter()
    found = call(states, given).block_until_ready()
    row["first"] = time.perf_counter() - began
    row["forward_error"] = error(torch, [torch.tensor(jax.device_get(found))], [expected])

    def eager() -> None:
        with torch.no_grad():
            model(**arguments)

    row["eager"], row["forward"] = timed([eager, lambda: call(states, given).block_until_ready()], runs)
    # A training step as JAX has it: the loss and its gradients by the parameters; buffers are not updated.
    model.train()
    wide = doubled(torch, model)
    exact_loss, exact_gradients = stepped(torch, wide, wide, widened(torch, arguments))
    states, function = torchax.extract_jax(model)
    names = [name for name, p in model.named_parameters() if name in states]
    parameters = {name: states.pop(name) for name in names}

    def loss(parameters: Any, given: Any) -> Any:
        return jax.numpy.square(tensor_of(function({**states, **parameters}, (), given))).mean()

    step = jax.jit(jax.value_and_grad(loss))
    began = time.perf_counter()
    ready: Any = jax.block_until_ready
    value, gradients = ready(step(parameters, given))
    row["first_step"] = time.perf_counter() - began
    found = [torch.tensor(jax.device_get(g)) for g in (value, *(gradients[n] for n in names if has_gradient(wide, n)))]
    row["step_error"] = error(torch, found, [exact_loss, *exact_gradients])
    row["eager_step"], row["step"] = timed(
        [lambda: stepped(torch, model, model, arguments), lambda: ready(step(parameters, given))], runs
    )
    return row


def has_gradient(model: Any, name: str) -> bool:
    """Whether the parameter has a gradient (one that no result depends on has none in torch, and zeros in JAX)."""
    return model.get_parameter(name).grad is not None


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown, a model a line: errors, eager mode's milliseconds, and the engines' times over eager mode's in their process."""
    by: dict[Any, dict[str, Any]] = {}
    for r in rows:
        by.setdefault((r["model"], r["engine"]), {}).update(r)

    def over(row: dict[str, Any], key: str, eager: str) -> str:
        return f"{row[key] / row[eager]:.2f}" if key in row and eager in row else "failed" if "failed" in row else "-"

    step = " | ".join(f"{engine} step" for engine in ("tilewright", "inductor", "JAX"))
    lines = [
        "| model | error (eager; inductor; JAX) | eager, ms | tilewright | inductor | JAX "
        f"| step error (eager; inductor; JAX) | eager step, ms | {step} |",
        "|---" * 11 + "|",
    ]
    for name in dict.fromkeys(r["model"] for r in rows):
        own, other, xla = (by.get((name, engine), {}) for engine in ENGINES)
        cells = []
        for key, eager in (("forward", "eager"), ("step", "eager_step")):
            found, theirs = f"{key}_error", f"{eager}_error"
            others = [f"{r[k]:.0e}" if k in r else "-" for r, k in ((own, theirs), (other, found), (xla, found))]
            cells.append(f"{own[found]:.0e} ({'; '.join(others)})" if found in own else "failed" if own else "-")
            cells.append(f"{own[eager] * 1e3:.2f}" if eager in own else "-")
            cells += [over(r, key, eager) for r in (own, other, xla)]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*", default=list(MODELS))
    p.add_argument("--engines", default=",".join(ENGINES))
    p.add_argument("--small", action="store_true", help="short inputs and few layers: for tests")
    p.add_argument("--one-thread", action="store_true", help="one thread for each engine; processor's time")
    p.add_argument("--runs", type=int, default=15)
    p.add_argument("--json", help="write the rows to this file after each of them, too")
    p.add_argument("--table", nargs="+", metavar="FILE", help="print the table of rows of --json; the last of a kind counts")
    p.add_argument("--worker", nargs=2, metavar=("MODEL", "ENGINE"), help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.worker:
        print(json.dumps(measured(args.worker[0], args.worker[1], args.small, args.runs)))
        return 0
    if args.table:
        kept = []
        for name in args.table:
            with open(name, encoding="utf-8") as f:
                kept += json.load(f)
        print(table(kept))
        return 0
    if args.one_thread:
        flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        os.environ.update(TILEWRIGHT_NUM_THREADS="1", OMP_NUM_THREADS="1", XLA_FLAGS=flags)
    rows = []
    for name in args.models:
        for engine in args.engines.split(","):
            command = [sys.executable, "-P", __file__, "--worker", name, engine, "--runs", str(args.runs)]
            done = subprocess.run([*command, *(["--small"] if args.small else [])], capture_output=True, text=True)
            if done.returncode:
                why = done.stderr.strip().splitlines()[-3:]
                rows.append({"model": name, "engine": engine, "failed": " ".join(why)})
                print(f"{name} {engine}: {' '.join(why)}", file=sys.stderr)
            else:
                rows.append(json.loads(done.stdout.strip().splitlines()[-1]))
                print(rows[-1], file=sys.stderr)
            if args.json:
                with open(args.json, "w", encoding="utf-8") as f:
                    json.dump(rows, f, indent=1)
    print(table(rows))
    return 1 if any("failed" in r for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
