"""What a compiled model writes to is written where it lies: caches, counters, arguments; as in eager mode, in the same memory."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.torch.test_backend import compiled

pytestmark = pytest.mark.torch

HEADS, LENGTH, WIDTH = 4, 32, 16


def decoder(torch: Any, write: Callable[..., None]) -> Any:
    """A token's attention over a cache, into which `write(cache, place, rows)` puts what is new."""
    nn = torch.nn

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("keys", torch.randn(1, HEADS, LENGTH, WIDTH))
            self.register_buffer("values", torch.randn(1, HEADS, LENGTH, WIDTH))
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
            self.qkv = nn.Linear(HEADS * WIDTH, 3 * HEADS * WIDTH)

        def forward(self, x: Any, place: Any) -> Any:
            q, k, v = self.qkv(x).view(1, 1, 3, HEADS, WIDTH).permute(2, 0, 3, 1, 4)
            write(self.keys, place, k)
            write(self.values, place, v)
            self.steps.add_(1)
            mask = (torch.arange(LENGTH) <= place)[None, None, None]
            return nn.functional.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask)

    return Decoder().eval()


def by_index(cache: Any, place: Any, rows: Any) -> None:
    cache.index_copy_(2, place, rows)


def by_item(cache: Any, place: Any, rows: Any) -> None:
    cache[:, :, place] = rows


@pytest.mark.parametrize("write", [by_index, by_item])
def test_a_cache_is_written_in_place(torch: Any, write: Any) -> None:
    model = decoder(torch, write)
    eager, plain = copy.deepcopy(model), model
    call = compiled(torch, model)
    places = [model.keys.data_ptr(), model.values.data_ptr()]
    with torch.no_grad():
        for step in range(4):
            x, place = torch.randn(1, 1, HEADS * WIDTH), torch.tensor([3 + step])
            torch.testing.assert_close(call(x, place), eager(x, place), rtol=1e-4, atol=1e-5)
            for name in ("keys", "values", "steps"):
                torch.testing.assert_close(getattr(plain, name), getattr(eager, name), rtol=1e-4, atol=1e-5)
    assert [model.keys.data_ptr(), model.values.data_ptr()] == places


def test_nothing_is_copied_there(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program's results are the cache's own memory: torch copies a tensor to itself, which is nothing."""
    from tilewright.torch import backend

    seen: list[Any] = []
    original = backend.Program._compile

    def noted(self: Any, inputs: Any) -> Any:
        made = original(self, inputs)
        seen.append(made)
        return made

    monkeypatch.setattr(backend.Program, "_compile", noted)
    model = decoder(torch, by_index)
    call = compiled(torch, model)
    with torch.no_grad():
        call(torch.randn(1, 1, HEADS * WIDTH), torch.tensor([3]))
    (made,) = seen
    shapes = sorted(tuple(made.executable.plan.program.results[r].shape) for r in made.written)
    assert [s for s in shapes if s] == [(1, HEADS, LENGTH, WIDTH)] * 2


def test_an_argument_that_shares_memory_is_not_written_early(torch: Any) -> None:
    """What is read through another tensor of the same memory is what was there before."""

    def f(a: Any, b: Any) -> Any:
        total = b.sum(0) * 2
        a.mul_(3.0)
        return a.sum() + total

    for make in (lambda base: (base, base), lambda base: (base[:8], base[4:]), lambda base: (base.t(), base)):
        base = torch.randn(12, 12)
        mine, theirs = base.clone(), base.clone()
        torch._dynamo.reset()
        with torch.no_grad():
            torch.testing.assert_close(compiled(torch, f)(*make(mine)), f(*make(theirs)), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(mine, theirs)


def test_other_orders_of_memory_and_slices(torch: Any) -> None:
    def f(a: Any, b: Any) -> Any:
        a.add_(b)
        b.copy_(a.tanh())
        return a * 2

    for a, b in (
        (torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), torch.randn(2, 3, 4, 5)),
        (torch.randn(6, 8).t(), torch.randn(8, 6)),
        (torch.randn(6, 9)[:, 1:], torch.randn(6, 8)),
        (torch.randn(49)[1:].view(6, 8), torch.randn(6, 8)),
    ):
        theirs = [copy.deepcopy(x) for x in (a, b)]
        torch._dynamo.reset()
        call = compiled(torch, f)
        with torch.no_grad():
            for _ in range(2):
                torch.testing.assert_close(call(a, b), f(*theirs), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(a, theirs[0])
        torch.testing.assert_close(b, theirs[1])


def test_beside_an_op_that_is_left_to_torch(torch: Any) -> None:
    """A graph in pieces may be called again from its beginning: it writes nothing before its end."""

    def f(a: Any, x: Any) -> Any:
        a.add_(1.0)
        found = torch.nonzero(x)  # its shape depends on values
        return a.sum() + found.sum()

    a, x = torch.zeros(5, 4), torch.tensor([0.0, 1.0, 0.0, 2.0])
    call = compiled(torch, f)
    with torch.no_grad():
        for k in range(1, 4):
            assert float(call(a, x)) == 20 * k + 4
            assert float(a[0, 0]) == k
