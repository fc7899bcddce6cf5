"""What people who come from eager mode do with a compiled model: each against eager mode, called several times."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.torch.test_backend import close, compiled

pytestmark = pytest.mark.torch


def agree(torch: Any, found: Any, expected: Any, tolerance: float = 2e-5) -> None:
    """Tensors by their elements, types and shapes; everything else by being equal."""
    ys, es = torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(expected)
    assert len(ys) == len(es)
    for y, e in zip(ys, es, strict=True):
        if not isinstance(e, torch.Tensor):
            assert y == e
        elif e.numel() and e.any():
            assert close(y, e, tolerance)
        else:
            assert (y.shape, y.dtype) == (e.shape, e.dtype) and not y.any()


def _functions(torch: Any) -> dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]]:
    """name -> a function, and the arguments of its calls; what it writes to its arguments is compared, too."""
    r = torch.randn

    def writes(x: Any) -> Any:
        x.add_(1)
        x[0] = 5
        return x * 2

    def writes_a_view(x: Any) -> Any:
        y = x[:, 1]
        y.mul_(3)
        return x.sum(), y

    def writes_out(x: Any, out: Any) -> Any:
        torch.add(x, 1, out=out)
        return out

    def copies(x: Any, y: Any) -> Any:
        y.copy_(x.t())
        return y.sum()

    def breaks(x: Any) -> Any:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos() * 2

    def scans(x: Any, h: Any) -> Any:
        for t in range(x.shape[0]):
            h = torch.tanh(h + x[t])
        return h

    return {
        "a batch of any size": (lambda x: torch.softmax(x, 0) @ x.t(), [(r(n, 4),) for n in (2, 5, 1, 7)]),
        "no element": (lambda x: (x.sum(), x.view(0, 2) + 1, torch.cat([x, torch.ones(2)])), [(torch.zeros(0),)]),
        "graph break": (breaks, [(r(5),), (r(6),)]),
        "a value of the graph": (lambda x: x * x.max().item(), [(r(6),), (r(6),)]),
        "whole numbers": (lambda x, n: (x * n, x + n**2, n + 1), [(r(3), n) for n in (1, 2, 3, -4)]),
        "numbers and words": (lambda x, a, s: (x * a + a, s + "!"), [(r(3), 0.5, "a"), (r(3), 1.5, "b")]),
        "tensors of integers": (
            lambda x, i: (x[i], i // 2, i % 3, i << 1, ~i, i.float().mean(), i.sum(), i.bitwise_and(3)),
            [(r(5), torch.tensor([0, 4, -2]))],
        ),
        "bytes of an image": (
            lambda x: (x.float() / 255).permute(0, 3, 1, 2).mean((2, 3)), [(torch.arange(96).reshape(2, 4, 4, 3).byte(),)]
        ),
        "several results": (lambda x: {"a": x + 1, "b": [x * 2, (x.sum(), None, 3, "s")]}, [(r(3),)]),
        "arguments handed back": (lambda x, y: (x, y, x + y, x), [(r(3), r(3))]),
        "None": (lambda x, y=None: (None if y is None else x + y, x * 2), [(r(3),), (r(3), r(3))]),
        "views": (lambda x: (x.t(), x.view(-1), x[1:, ::2], x.expand(2, *x.shape), x.unsqueeze(0)), [(r(4, 6),)]),
        "writes to an argument": (writes, [(r(4),), (r(4),)]),
        "writes to a view": (writes_a_view, [(r(4, 3),)]),
        "writes to out": (writes_out, [(r(4), torch.zeros(4))]),
        "copies": (copies, [(r(3, 4), torch.zeros(4, 3))]),
        "a loop of Python": (scans, [(r(5, 3), torch.zeros(3))]),
        "gradients and batches of functions": (
            lambda x: torch.func.vmap(torch.func.grad(lambda v: (v.sin() ** 2).sum()))(x), [(r(3, 4),)]
        ),
        "NumPy inside": (lambda x: torch.from_numpy(x.numpy() + 1) * 2, [(r(3),)]),
    }  # fmt: skip


NAMES = (
    "a batch of any size|no element|graph break|a value of the graph|whole numbers|numbers and words|tensors of integers"
    "|bytes of an image|several results|arguments handed back|None|views|writes to an argument|writes to a view|writes to out"
    "|copies|a loop of Python|gradients and batches of functions|NumPy inside"
).split("|")


@pytest.mark.parametrize("name", NAMES)
def test_functions(torch: Any, name: str) -> None:
    made = _functions(torch)
    assert list(made) == NAMES
    f, calls = made[name]
    call = compiled(torch, f)
    for given in calls:
        mine, theirs = copy.deepcopy(given), copy.deepcopy(given)
        agree(torch, call(*mine), f(*theirs))
        agree(torch, mine, theirs)


def test_arguments_that_share_memory(torch: Any) -> None:
    """The same tensor twice, two that overlap, and a result that is a view of an argument."""
    def f(a: Any, b: Any) -> Any:
        a.mul_(2)
        return b + 1

    x, y = torch.arange(6.0), torch.arange(6.0)
    agree(torch, compiled(torch, f)(x[:4], x[2:]), f(y[:4], y[2:]))
    agree(torch, compiled(torch, f)(x, x), f(y, y))
    agree(torch, x, y)
    compiled(torch, lambda x: x.view(-1))(x.view(2, 3))[0] = 42.0
    assert x[0] == 42


def trained(torch: Any, model: Any, optimizer: Callable[..., Any], compile_step: bool = False) -> None:
    """A few steps by a compiled model and by its copy in eager mode have the same parameters and buffers."""
    eager = copy.deepcopy(model)
    call = compiled(torch, model)
    ours, theirs = optimizer(model.parameters()), optimizer(eager.parameters())
    step = compiled(torch, ours.step) if compile_step else ours.step
    for n in (6, 4, 6):
        x = torch.randn(n, 4)
        for f, o, go in ((call, ours, step), (eager, theirs, theirs.step)):
            o.zero_grad()
            f(x).square().mean().backward()
            go()
    agree(torch, [*model.parameters(), *model.buffers()], [*eager.parameters(), *eager.buffers()], 2e-4)


OPTIMIZERS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "SGD": lambda t: lambda p: t.optim.SGD(p, 0.1, momentum=0.9),
    "AdamW": lambda t: lambda p: t.optim.AdamW(p, 0.01),
}


@pytest.mark.parametrize("compile_step", [False, True])
@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_optimizers(torch: Any, name: str, compile_step: bool) -> None:
    """In eager mode, and compiled (Adam's step has `prims.fma`, which was an error)."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 2))
    trained(torch, model, OPTIMIZERS[name](torch), compile_step)


def test_normalisations_over_batches_of_other_sizes(torch: Any) -> None:
    nn = torch.nn
    trained(torch, nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.SiLU(), nn.Linear(8, 2)), OPTIMIZERS["SGD"](torch))


def test_mixed_precision(torch: Any) -> None:
    nn = torch.nn
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
    eager, x = copy.deepcopy(model), torch.randn(8, 16)
    results = []
    for f in (compiled(torch, model), eager):
        with torch.autocast("cpu", torch.bfloat16):
            results.append(f(x))
        results[-1].float().square().mean().backward()
    assert results[0].dtype == torch.bfloat16
    agree(torch, results[0], results[1], 2e-2)
    agree(torch, [p.grad for p in model.parameters()], [p.grad for p in eager.parameters()], 3e-2)


def test_modes_of_gradients(torch: Any) -> None:
    """The same model without gradients, with them, in inference mode; parts of it frozen; a hook on a parameter."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    model[0].requires_grad_(False)
    eager = copy.deepcopy(model)
    model[2].weight.register_hook(lambda g: g * 2)
    call, x = compiled(torch, model), torch.randn(3, 4)
    with torch.no_grad():
        assert not call(x).requires_grad
    with torch.inference_mode():
        agree(torch, call(x), eager(x))
    for f in (call, eager):
        for _ in range(2):  # gradients add up
            f(x).sum().backward()
    assert model[0].weight.grad is None
    agree(torch, model[2].weight.grad, 2 * eager[2].weight.grad)


def test_parameters_that_are_replaced(torch: Any) -> None:
    """By `load_state_dict`, in place and not; by another layer; in training and evaluation."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).eval()
    call, x = compiled(torch, model), torch.randn(6, 4)
    agree(torch, call(x), model(x))
    for assign in (False, True):
        model.load_state_dict({k: v * 2 + 1 for k, v in model.state_dict().items()}, assign=assign)
        agree(torch, call(x), model(x))
    model[0] = nn.Linear(4, 3)
    agree(torch, call(x), model(x))
    model.train()
    call(x)
    model.eval()
    agree(torch, call(x), model(x))


def test_buffers_of_a_models_own(torch: Any) -> None:
    """A count, a memory that is replaced at each call, and a cache that rows are written to."""
    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))
            self.register_buffer("memory", torch.zeros(1, 4))
            self.register_buffer("cache", torch.zeros(8, 4))

        def forward(self, x: Any, at: int) -> Any:
            self.count += 1
            self.memory = self.memory * 0.5 + x
            self.cache[at : at + 1] = x
            return self.memory * self.count + self.cache[: at + 1].sum(0)

    model = Model()
    eager, call = copy.deepcopy(model), compiled(torch, model)
    for at in range(4):
        x = torch.randn(1, 4)
        agree(torch, call(x, at), eager(x, at))
    agree(torch, list(model.buffers()), list(eager.buffers()))


def test_nan_is_as_in_eager_mode(torch: Any) -> None:
    """The sign of a NaN is 0 there, and a NaN is the largest and the smallest that a running extremum meets."""
    def f(x: Any) -> Any:
        return x.sign(), x.cummax(0).indices, x.cummin(0).indices, x.cummax(0).values.isnan(), x.max().isnan(), x.argmax()

    nan, inf = float("nan"), float("inf")
    for given in ([1.0, 3, nan, 5, -inf, nan, 2], [nan, 1, 2], [2.0, 2, 1, inf, inf, -0.0, 0.0], [-inf, -inf, nan]):
        x = torch.tensor(given)
        for y, e in zip(compiled(torch, f)(x), f(x), strict=True):
            assert y.dtype == e.dtype and torch.equal(y, e), given


def test_results_without_elements_can_grow(torch: Any) -> None:
    """`resize_` needs memory that is torch's: NumPy's has a fixed size."""
    def f(x: Any) -> Any:
        y = torch.empty(0)
        y.resize_(3)
        return y.zero_() + x

    agree(torch, compiled(torch, f)(torch.ones(3)), torch.ones(3))
    empty = compiled(torch, lambda x: x[:0] * 2)(torch.ones(3))
    assert torch.add(torch.ones(2), 1, out=empty).tolist() == [2, 2]


def test_types_that_numpy_lacks_are_left_to_torch(torch: Any) -> None:
    """An op on them was an error."""
    def f(x: Any) -> Any:
        return x.exp().to(torch.float8_e8m0fnu).to(torch.float32) * 2

    agree(torch, compiled(torch, f)(torch.tensor([0.5, 1.0, 2.0])), f(torch.tensor([0.5, 1.0, 2.0])))


def test_conjugates_and_negatives_that_are_not_computed_yet(torch: Any) -> None:
    def f(x: Any) -> Any:
        return x * 2

    z = torch.randn(4, dtype=torch.complex64)
    for x in (z.conj(), z.conj().imag, z.real):
        found, expected = compiled(torch, f)(x), f(x).resolve_conj().resolve_neg()
        assert found.dtype == expected.dtype and torch.equal(found.resolve_conj().resolve_neg(), expected)


def test_checkpoints_and_functions_of_ones_own(torch: Any) -> None:
    """Activations that are computed again, and `autograd.Function` with a gradient of its own."""
    from torch.utils.checkpoint import checkpoint

    class Thrice(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return 3 * g * ctx.saved_tensors[0]

    layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))

    def f(x: Any) -> Any:
        return Thrice.apply(checkpoint(layers, x, use_reentrant=False)).sum()

    x = torch.randn(3, 4, requires_grad=True)
    mine = x.detach().clone().requires_grad_()
    compiled(torch, f)(mine).backward()
    f(x).backward()
    agree(torch, mine.grad, x.grad)
