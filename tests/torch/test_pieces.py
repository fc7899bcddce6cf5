"""Ops without a form here run in torch between programs: results, gradients, random numbers, sizes that depend on values."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.torch.test_backend import close, compiled
from tilewright.torch.packages import TorchError

pytestmark = pytest.mark.torch


def pieces_of(torch: Any, f: Callable[..., Any], *inputs: Any) -> Any:
    """The `Pieces` of a function's graph, called once."""
    from tilewright.torch.backend import Options, Program
    from tilewright.torch.ops import Ops
    from tilewright.torch.packages import packages
    from tilewright.torch.pieces import Pieces

    ops = Ops(packages())
    traced = torch.fx.experimental.proxy_tensor.make_fx(f, ops.decompositions(), tracing_mode="fake")(*inputs)
    made = Pieces(traced, ops, lambda graph, name: Program(graph, Options(), name), "a graph")
    (found,) = made(*inputs)
    assert close(found, f(*inputs))
    return made


def test_an_op_without_a_form_is_between_two_programs(torch: Any) -> None:
    def f(x: Any) -> Any:
        y = torch.linalg.det((x * 2).exp()).sin()  # torch's own, then a sine; the cosine waits for neither
        return y * x.cos()

    made = pieces_of(torch, f, torch.randn(3, 3))
    assert made.left == ("aten._linalg_det.default",) and len(made.programs) == 2
    assert len(pieces_of(torch, lambda x: x.exp() + 1, torch.randn(3)).programs) == 1


def test_parts_are_as_few_as_ops_wait_for_each_other(torch: Any) -> None:
    def f(x: Any) -> Any:
        a, b = torch.linalg.det(x.exp()), torch.linalg.det(x.sin())
        return torch.linalg.det((a + b) * x)

    made = pieces_of(torch, f, torch.randn(3, 3))
    assert len(made.left) == 3 and len(made.programs) == 2


def test_what_is_left_to_torch_is_said_once(torch: Any, caplog: pytest.LogCaptureFixture) -> None:
    call = compiled(torch, lambda x: torch.linalg.det(x.exp()) + 1)
    x = torch.randn(3, 3)
    with caplog.at_level(logging.WARNING, "tilewright"):
        for _ in range(2):
            assert close(call(x), torch.linalg.det(x.exp()) + 1)
    (said,) = [r.getMessage() for r in caplog.records]
    assert said == (
        "torch: a graph: aten._linalg_det.default is left to torch: neither this package nor torchax has the op in JAX's terms"
    )


def test_with_strict_it_is_an_error(torch: Any) -> None:
    with pytest.raises(TorchError, match=r"aten\._linalg_det\.default: neither .* has the op"):
        compiled(torch, lambda x: torch.linalg.det(x), strict=True)(torch.randn(3, 3))
    with pytest.raises(TorchError, match="cond: a graph inside a graph"):
        compiled(torch, _branch(torch), strict=True)(torch.ones(3))


def _branch(torch: Any) -> Callable[[Any], Any]:
    return lambda x: torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x.exp(),)) + 1


def test_graphs_inside_graphs(torch: Any) -> None:
    call, f = compiled(torch, _branch(torch)), _branch(torch)
    for x in (torch.ones(3), -torch.ones(3)):
        assert close(call(x), f(x))


def test_gradients_through_what_is_left(torch: Any) -> None:
    """A backward op that nobody has in JAX's terms (`_cdist_backward`) was an error."""
    def f(x: Any) -> Any:
        return (torch.cdist(x, x + 1, p=3.0).sin() * x.exp().sum()).sum()

    x = torch.randn(3, 2, requires_grad=True)
    mine = x.detach().clone().requires_grad_()
    found, expected = compiled(torch, f)(mine), f(x)
    found.backward()
    expected.backward()
    assert close(found, expected) and close(mine.grad, x.grad)


def test_sizes_that_depend_on_values(torch: Any) -> None:
    """Their ops raise while JAX traces them: the graph is parted at its first call, and what follows runs for each size."""
    def f(x: Any) -> Any:
        chosen = x.exp()[x > 0] * 2
        return chosen.sum(), chosen.sort().values, chosen.numel()

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        call = compiled(torch, f)
        for _ in range(3):
            x = torch.randn(9)
            (total, values, count), expected = call(x), f(x)
            assert close(total, expected[0]) and close(values, expected[1]) and count == expected[2]


def test_the_first_call_has_the_seeds_random_numbers(torch: Any) -> None:
    """A call that is repeated, since an op could not be traced, begins with the random numbers that it began with."""
    def f(x: Any) -> Any:
        kept = torch.nn.functional.dropout(x, 0.5)
        return kept, torch.nn.functional.embedding_bag(torch.tensor([[0, 1]]), kept.reshape(4, 2))

    call, x = compiled(torch, f), torch.ones(8)
    found = []
    for _ in range(2):
        torch.manual_seed(5)
        found.append(call(x))
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])


def test_symbolic_sizes(torch: Any) -> None:
    call = torch.compile(lambda x: (torch.cdist(x, x + 1, p=3.0) * x.shape[0]).cos(), backend=_backend(), dynamic=True)
    for n in (2, 3, 5):
        x = torch.randn(n, 2)
        assert close(call(x), (torch.cdist(x, x + 1, p=3.0) * n).cos())


def _backend() -> Any:
    from tilewright.torch.backend import backend

    return backend


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_layers_that_torch_has_as_one_op(torch: Any, first: bool, activation: str) -> None:
    """Without gradients torch's encoder layer is one op, which was an error; without a mask it is taken apart."""
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=first, activation=activation).eval()
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        assert close(compiled(torch, layer, strict=True)(x), layer(x))
        padding = torch.arange(5) > torch.tensor([[2], [4]])
        torch._dynamo.reset()
        found, expected = (f(x, src_key_padding_mask=padding) for f in (compiled(torch, layer), layer))
        assert close(found, expected)


@pytest.mark.parametrize("weights", [{"need_weights": False}, {}, {"average_attn_weights": False}])
def test_attention_that_torch_has_as_one_op(torch: Any, weights: dict[str, bool]) -> None:
    layer = torch.nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        found, expected = (f(x, x, x, **weights) for f in (compiled(torch, layer, strict=True), layer))
    assert close(found[0], expected[0])
    assert (found[1] is None) == (expected[1] is None) and (found[1] is None or close(found[1], expected[1]))
