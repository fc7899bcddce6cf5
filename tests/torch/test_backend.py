"""`torch.compile(model, backend="tilewright")` and `from_torch` against eager mode."""

from __future__ import annotations

import copy
import logging
import tomllib
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.project.test_imports import ROOT
from tilewright.torch.packages import TorchError

pytestmark = pytest.mark.torch


def compiled(torch: Any, model: Any, **options: Any) -> Any:
    from tilewright.torch.backend import backend

    return torch.compile(model, backend=backend, options=options or None)


def network(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Flatten(),
        nn.Linear(32, 5),
    )  # fmt: skip


def close(found: Any, expected: Any, tolerance: float = 1e-5) -> bool:
    assert found.dtype == expected.dtype and found.shape == expected.shape
    return bool((found.detach().double() - expected.detach().double()).abs().max() <= tolerance * expected.double().abs().max())


def test_entry_point() -> None:
    """torch finds the backend by its name without an import."""
    entry = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]["torch_dynamo_backends"]
    module, _, name = entry["tilewright"].partition(":")
    assert callable(getattr(import_module(module), name))


def test_training_step(torch: Any) -> None:
    """Results, gradients of all parameters, and the buffers that the model updates."""
    model, expected = network(torch), None
    eager = copy.deepcopy(model)
    call = compiled(torch, model)
    for _ in range(2):
        x = torch.randn(2, 3, 8, 8, requires_grad=True)
        mine = x.detach().clone().requires_grad_()
        found, expected = call(mine), eager(x)
        assert close(found, expected)
        found.square().sum().backward()
        expected.square().sum().backward()
        assert close(mine.grad, x.grad)
    # A bias before a normalisation over the batch has no gradient but for rounding.
    for (name, p), e in zip(model.named_parameters(), eager.parameters(), strict=True):
        assert name == "0.bias" or close(p.grad, e.grad), name
    for (name, b), e in zip(model.named_buffers(), eager.named_buffers(), strict=True):
        assert close(b, e[1]), name
    assert int(model[1].num_batches_tracked) == 2


def test_what_is_kept_of_images_lies_with_channels_last(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a forward graph and its backward one, which alone see it; results are as torch expects them."""
    from tilewright.torch import backend

    seen: dict[str, Any] = {}
    original = backend.Program._compile

    def noted(self: Any, inputs: Any) -> Any:
        seen[self._name] = original(self, inputs)
        return seen[self._name]

    monkeypatch.setattr(backend.Program, "_compile", noted)
    nn = torch.nn
    first, second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 24, 3, padding=1)
    model = nn.Sequential(first, nn.BatchNorm2d(16), nn.GELU(), second, nn.Tanh())
    eager = copy.deepcopy(model)
    x = torch.randn(2, 3, 12, 12)
    found, expected = compiled(torch, model)(x), eager(x)
    assert close(found, expected) and found.stride() == expected.stride()
    found.square().sum().backward()
    expected.square().sum().backward()
    for (name, p), e in zip(model.named_parameters(), eager.parameters(), strict=True):
        if name != "0.bias":  # before a normalisation: none but for rounding
            assert close(p.grad, e.grad, 1e-4), name
    kept = [tuple(v.shape) for v in seen["a forward graph"].executable.plan.program.results]
    assert (2, 12, 12, 16) in kept and (2, 16, 12, 12) not in kept


def test_each_batch_is_compiled_once(torch: Any, caplog: pytest.LogCaptureFixture) -> None:
    model = torch.nn.Linear(4, 3).eval()
    call = compiled(torch, model)
    with caplog.at_level(logging.INFO, "tilewright"), torch.no_grad():
        for n in (2, 5, 7, 5, 7):
            x = torch.randn(n, 4)
            assert close(call(x), model(x))
    said = [r.getMessage() for r in caplog.records if r.getMessage().startswith("torch:")]
    assert len(said) == 3
    assert [f"({n}, 4)" in line for n, line in zip((2, 5, 7), said, strict=True)] == [True] * 3


def test_written_parameters_are_seen(torch: Any) -> None:
    """By an optimiser, by NumPy, by `.data`: parameters are read where they are. With `freezing`, what torch knows of is seen."""
    for options in ({}, {"freezing": True}):
        torch._dynamo.reset()
        model = torch.nn.Linear(64, 64).eval()
        call = compiled(torch, model, **options)
        x = torch.randn(64, 64)
        with torch.no_grad():
            for _ in range(3):
                assert close(call(x), model(x))
                model.weight.mul_(2)
            if not options:
                model.weight.data.mul_(3)
                model.bias.detach().numpy()[:] = 1
            assert close(call(x), model(x))


def test_memory_is_shared(torch: Any) -> None:
    from tilewright.torch.tensors import as_array, as_tensor, memory_order

    x = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    order = memory_order(x.shape, x.stride())
    assert order == (0, 2, 3, 1)
    array = as_array(x, order)
    assert array.flags.c_contiguous
    back = as_tensor(array, x.dtype, order)
    assert back.data_ptr() == x.data_ptr() and back.stride() == x.stride()
    half = torch.ones(3, dtype=torch.bfloat16)
    shared = as_array(half, (0,))
    half[1] = 2
    assert shared.tolist() == [1, 2, 1] and as_tensor(shared, half.dtype, (0,)).data_ptr() == half.data_ptr()


def test_layouts(torch: Any) -> None:
    """Memory in another order, in and out; transposed, expanded and cut tensors; a result that is the argument."""
    conv = torch.nn.Conv2d(3, 4, 3).eval().to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 6, 6).contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        found, expected = compiled(torch, conv)(x), conv(x)
        assert close(found, expected) and found.stride() == expected.stride()

        def f(a: Any, b: Any) -> Any:
            return (a.t() @ b).relu(), a, b.sum(0)

        call = compiled(torch, f)
        a, b = torch.randn(4, 5)[:, ::2], torch.randn(1, 6).expand(4, 6)
        for y, e in zip(call(a, b), f(a, b), strict=True):
            assert close(y, e)
        assert call(a, b)[1] is a


def test_random_numbers(torch: Any) -> None:
    """Other numbers at each call, the same ones after the same seed, and the same ones backward as forward."""
    call = compiled(torch, lambda x: torch.nn.functional.dropout(x, 0.25))
    x = torch.ones(4000, requires_grad=True)
    torch.manual_seed(1)
    first, second = call(x), call(x)
    torch.manual_seed(1)
    assert torch.equal(call(x), first) and not torch.equal(first, second)
    assert abs(float((first == 0).float().mean()) - 0.25) < 0.03
    assert torch.equal(first[first != 0], torch.full_like(first[first != 0], 1 / 0.75))
    first.sum().backward()
    assert torch.equal(x.grad, first.detach())


def test_graph_breaks_are_torchs(torch: Any) -> None:
    def f(x: Any) -> Any:
        y = x * 2
        if float(y.sum()) > 0:  # a value decides: torch's tracer stops here and begins anew
            return y.exp()
        return y.sin()

    call = compiled(torch, f)
    for x in (torch.ones(3), -torch.ones(3)):
        assert close(call(x), f(x))


def test_what_is_wrong_is_said(torch: Any) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"thread": 2}, "expected some of"), ({"threads": 0}, "expected a positive number"),
        ({"threads": True}, "expected a positive number"), ({"freezing": "yes"}, "expected True or False"),
        ({"strict": 1}, "expected True or False"),
    ]  # fmt: skip
    for options, words in wrong:
        with pytest.raises(Exception, match=words):
            compiled(torch, torch.nn.Linear(2, 2), **options)(torch.ones(1, 2))
    call = compiled(torch, lambda x: torch.cdist(x, x + 1, p=3.0), strict=True)
    with pytest.raises(TorchError, match=r"_cdist_backward.*nor torchax has the op"):
        call(torch.randn(3, 2, requires_grad=True)).sum().backward()
    with pytest.raises(TorchError, match="random ops"):
        tilewright.from_torch(torch.nn.Dropout(), torch.ones(2))


def test_from_torch(torch: Any) -> None:
    """The arguments are the parameters, the buffers, then the tensors."""
    model = network(torch).eval()
    x = torch.randn(2, 3, 8, 8)
    module = tilewright.from_torch(model, x)
    arrays = [t.detach().numpy() for t in (*model.parameters(), *model.buffers(), x)]
    (found,) = tilewright.compile(module)(*arrays)
    (evaluated,) = tilewright.evaluate(module, *arrays)
    expected = model(x).detach().numpy()
    for y in (found, evaluated):
        assert np.abs(y - expected).max() < 1e-5
    two = tilewright.from_torch(lambda a, *, b, n: (a + b * n, {"sum": b.sum()}), x, b=x, n=3)
    assert [len(two.function().arguments), len(two.function().result_types)] == [2, 2]


def test_from_torch_with_weights_that_two_layers_share(torch: Any) -> None:
    """They have two names and are one argument; a buffer that is not saved and a constant besides. It was a KeyError."""
    class Tied(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.words = torch.nn.Embedding(5, 4)
            self.out = torch.nn.Linear(4, 5, bias=False)
            self.out.weight = self.words.weight
            self.register_buffer("scale", torch.arange(4.0), persistent=False)
            self.again = self.scale
            self.one = torch.ones(4)

        def forward(self, ids: Any) -> Any:
            return self.out(self.words(ids) * self.scale + self.one)

    model, ids = Tied().eval(), torch.tensor([[1, 2], [3, 4]])
    module = tilewright.from_torch(model, ids)
    arrays = [t.detach().numpy() for t in (*model.parameters(), *model.buffers(), ids)]
    assert len(arrays) == len(module.function().arguments) == 3
    assert np.abs(tilewright.compile(module)(*arrays)[0] - model(ids).detach().numpy()).max() < 1e-5


def _op_cases() -> dict[str, Callable[[Any], Any]]:
    """Functions of torch and a seeded tensor (2, 4, 7, 6), each of which reaches an op that this package has in JAX's terms."""
    return {
        "conv_groups": lambda t: lambda x: t.nn.functional.conv2d(
            x, t.linspace(-1, 1, 72).reshape(4, 2, 3, 3), None, (2, 1), (1, 2), 2, 2
        ),
        "conv_transpose": lambda t: lambda x: t.nn.functional.conv_transpose2d(
            x, t.linspace(-1, 1, 108).reshape(4, 3, 3, 3), t.ones(6), (2, 1), 1, (1, 0), 2, 1
        ),
        "conv1d": lambda t: lambda x: t.nn.functional.conv1d(x.flatten(2), t.linspace(-1, 1, 24).reshape(2, 4, 3)),
        "max_pool_ceil": lambda t: lambda x: t.nn.functional.max_pool2d(x, 3, 2, 1, ceil_mode=True),
        "max_pool_where": lambda t: lambda x: t.nn.functional.max_pool2d(x.round(), 2, 2, 0, 2, return_indices=True),
        "avg_pool": lambda t: lambda x: t.nn.functional.avg_pool2d(x, 3, 2, 1, True, True),
        "avg_pool_inside": lambda t: lambda x: t.nn.functional.avg_pool2d(x, (2, 3), (2, 2), (1, 1), False, False),
        "adaptive": lambda t: lambda x: t.nn.functional.adaptive_avg_pool2d(x, (3, 4)),
        "bilinear": lambda t: lambda x: t.nn.functional.interpolate(x, size=(9, 5), mode="bilinear"),
        "bilinear_corners": lambda t: lambda x: t.nn.functional.interpolate(
            x, scale_factor=2, mode="bilinear", align_corners=True
        ),
        "nearest": lambda t: lambda x: t.nn.functional.interpolate(x, scale_factor=(2, 3)),
        "group_norm": lambda t: lambda x: t.nn.functional.group_norm(x, 2, t.ones(4) * 2, t.ones(4)),
        "layer_norm": lambda t: lambda x: t.nn.functional.layer_norm(x, (7, 6), t.full((7, 6), 2.0)),
        "attention": lambda t: lambda x: t.nn.functional.scaled_dot_product_attention(x, x * 2, x + 1, is_causal=True),
        "embedding": lambda t: lambda x: t.nn.functional.embedding(t.tensor([[1, 0], [1, 1]]), x[0, 0], padding_idx=0),
        "put": lambda t: lambda x: x.index_put((t.tensor([0, 1, 1]), t.tensor([1, 2, 2])), x.new_ones(7, 6), accumulate=True),
        "masked": lambda t: lambda x: x.masked_fill(x > 0, 3.0).softmax(-1) + t.where(x > 1, x, x.sigmoid()),
        "losses": lambda t: lambda x: t.nn.functional.cross_entropy(x.flatten(2), t.arange(84).reshape(2, 42) % 4),
        "scans": lambda t: lambda x: (x.cumsum(1) + x.std((0, 2), keepdim=True)) * x.argmax(3, keepdim=True),
        "integers": lambda t: lambda x: ((x * 10).int() // 3 + (x * 7).long() % 4, (x * 9).to(t.bfloat16) * 2),
        "pads": lambda t: lambda x: t.nn.functional.pad(x, (1, 2, 0, 1), mode="reflect").roll(1, 2)[..., 1:-1:2],
    }


@pytest.mark.parametrize("name", _op_cases())
def test_ops(torch: Any, name: str) -> None:
    """Results and gradients of ops as eager mode has them."""
    f = _op_cases()[name](torch)
    x = torch.randn(2, 4, 7, 6, requires_grad=True)
    mine = x.detach().clone().requires_grad_()
    leaves = torch.utils._pytree.tree_leaves
    found, expected = leaves(compiled(torch, f)(mine)), leaves(f(x))
    assert len(found) == len(expected)
    for y, e in zip(found, expected, strict=True):
        assert close(y, e)
    sums = [sum(y.pow(3).sum() for y in ys if y.requires_grad) for ys in (found, expected)]
    if sums[1].requires_grad:
        for s in sums:
            s.backward()
        assert close(mine.grad, x.grad, 2e-5)
