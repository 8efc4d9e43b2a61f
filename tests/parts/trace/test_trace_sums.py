"""Which channels are summed over, in products of vectors, of groups and of heads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hand_made import Net, floats, raw, see, shrunk
from torch import Tensor
from torch.nn import Linear
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode

from potluck.parts.cut.channels import rounded


def test_a_sum_over_no_dimension_in_particular_is_one_over_all() -> None:
    net = Net(lambda m, x: m.out(m.a(x)) * m.a(x).sum(()), a=Linear(3, 8), out=Linear(8, 2))
    assert shrunk(net, floats(1, 3)).cut == {"a.weight": (4, 3), "a.bias": (4,), "out.weight": (2, 4)}


def test_a_matrix_times_a_vector_has_the_channels_of_its_rows() -> None:
    net = Net(
        lambda m, x: m.out(m.a(x) + m.matrix @ m.vector), a=Linear(3, 8), matrix=raw(8, 6), vector=raw(6),
        out=Linear(8, 2),
    )  # fmt: skip
    assert shrunk(net, floats(1, 3)).blocks == [
        (8, "matrix[0] a.weight[0] a.bias[0] out.weight[1]"),
        (6, "matrix[1] vector[0]"),
    ]


def test_a_product_of_two_vectors_is_a_number_without_channels() -> None:
    net = Net(lambda m, x: m.a(x) * torch.dot(m.one, m.other), a=Linear(3, 2), one=raw(6), other=raw(6))
    assert shrunk(net, floats(1, 3)).blocks == [(6, "one[0] other[0]")]


def test_a_fresh_vector_times_a_fresh_matrix_may_be_as_long_as_need_be() -> None:
    def run(m: Net, x: Tensor) -> Tensor:
        hidden = m.a(x)
        ones = hidden.new_ones(hidden.shape[1], 5)
        return m.out(torch.addmv(hidden[0], ones, hidden.new_ones(5)))

    assert shrunk(Net(run, a=Linear(3, 8), out=Linear(8, 2)), floats(1, 3), exact=False).cut["a.weight"] == (4, 3)


def test_heads_that_a_product_mixes_have_the_same_channels() -> None:
    def run(m: Net, x: Tensor) -> Tensor:
        return m.out(torch.einsum("thd,h->td", m.a(x).unflatten(-1, (2, -1)), m.share))

    seen = shrunk(Net(run, a=Linear(3, 8), share=raw(2), out=Linear(4, 2)), floats(5, 3))
    assert seen.blocks == [(4, "a.weight[0] a.bias[0] out.weight[1]")]
    assert seen.kept("a.weight") == [0, 1, 4, 5]


def test_experts_stay_though_each_has_a_channel_of_a_gate() -> None:
    """3 experts of 16 x 8: how many there are is written into where their tokens end."""
    ends = torch.tensor([2, 4, 8], dtype=torch.int32)

    def run(m: Net, x: Tensor) -> Tensor:
        experts = m.experts * m.gates[:, None, None]
        return m.out(torch._grouped_mm(m.a(x), experts.transpose(1, 2), offs=ends))

    net = Net(run, a=Linear(3, 8), experts=raw(3, 16, 8), gates=raw(3), out=Linear(16, 2))
    seen = shrunk(net, floats(8, 3))
    assert seen.cut["experts"] == (3, 8, 4)
    assert seen.why("experts") == seen.why("gates") == "a matrix for each group: _grouped_mm in the network"


@pytest.mark.parametrize(("width", "hidden", "out"), [(0.3, 4, 5), (0.5, 8, 8), (0.55, 8, 9), (0.8, 12, 13)])
def test_rows_of_grouped_products_have_whole_pieces_of_16_bytes(width: float, hidden: int, out: int) -> None:
    """Four floats each; the kernel refuses other rows. What is only put out can be of any length."""
    ends = torch.tensor([2, 4, 8], dtype=torch.int32)
    net = Net(
        lambda m, x: m.out(torch._grouped_mm(m.a(x), m.experts.transpose(1, 2), offs=ends)), a=Linear(3, 12),
        experts=raw(3, 16, 12), out=Linear(16, 2),
    )  # fmt: skip
    seen = shrunk(net, floats(8, 3), width=width)
    assert seen.narrow.experts.shape == (3, out, hidden)
    assert [why for why in seen.channels.unusual(width, "ceil").values() if "multiples" in why] == [
        f"{hidden} of 12 instead of {wanted}: a grouped product takes multiples of 4"
        for wanted in {rounded(12 * width, "ceil")} - {hidden}
    ]


def test_groups_on_both_sides_are_a_product_for_each() -> None:
    def run(m: Net, x: Tensor) -> Tensor:
        rows = m.a(x).unflatten(-1, (3, -1)).transpose(0, 1)
        return m.out(torch._grouped_mm(rows.contiguous(), m.experts.transpose(1, 2)).sum(0))

    seen = shrunk(Net(run, a=Linear(3, 24), experts=raw(3, 16, 8), out=Linear(16, 2)), floats(8, 3))
    assert seen.cut == {"experts": (3, 8, 4), "a.weight": (12, 3), "a.bias": (12,), "out.weight": (2, 8)}


def test_groups_of_columns_are_no_matrices_of_their_own() -> None:
    ends = torch.tensor([8, 16], dtype=torch.int32)
    net = Net(
        lambda m, x: m.out(torch._grouped_mm(m.left, m.a(x), offs=ends).sum(0)), a=Linear(3, 8), left=raw(8, 16),
        out=Linear(8, 2),
    )  # fmt: skip
    seen = see(net, floats(16, 3))
    assert not seen.plan.narrowed
    assert seen.why("a.weight") == seen.why("left") == "nothing is known about _grouped_mm in the network"


def test_matrices_made_on_the_spot_are_as_long_as_the_rows_they_multiply() -> None:
    ends = torch.tensor([2, 4, 8], dtype=torch.int32)

    def run(m: Net, x: Tensor) -> Tensor:
        hidden = m.a(x)
        matrices = hidden.new_ones(3, 4, hidden.shape[1])
        return m.b(x) + torch._grouped_mm(hidden, matrices.transpose(1, 2), offs=ends)

    seen = shrunk(Net(run, a=Linear(3, 8), b=Linear(3, 4)), floats(8, 3))
    assert seen.cut == {"a.weight": (4, 3), "a.bias": (4,)}


def test_distances_to_a_code_book_for_each_head() -> None:
    def run(m: Net, x: Tensor) -> Tensor:
        return torch.cdist(m.a(x).unflatten(-1, (2, -1)).transpose(0, 1), m.codes).sum(0)

    seen = shrunk(Net(run, a=Linear(3, 16), codes=raw(2, 5, 8)), floats(6, 3))
    assert seen.cut == {"codes": (2, 5, 4), "a.weight": (8, 3), "a.bias": (8,)}


def in_one_piece(*given: Any) -> Tensor:
    """A linear layer as the one operation that it is on some processors; here PyTorch takes it apart."""
    watch = _get_current_dispatch_mode()
    if watch is None:
        return F.linear(*given)
    with _disable_current_modes():
        return watch.__torch_dispatch__(torch.ops.aten.linear.default, (), given)


@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer_that_comes_as_one_operation(bias: bool) -> None:
    def run(m: Net, x: Tensor) -> Tensor:
        hidden = in_one_piece(x, *m.a.parameters()).relu()
        return in_one_piece(hidden, *m.out.parameters())

    seen = shrunk(Net(run, a=Linear(3, 8, bias), out=Linear(8, 2, bias)), floats(1, 3))
    assert seen.blocks == [(8, f"a.weight[0] {'a.bias[0] ' if bias else ''}out.weight[1]")]


def test_a_linear_layer_of_one_vector_that_comes_as_one_operation() -> None:
    """What comes out has one dimension, whose channels a product with another vector sums."""
    net = Net(
        lambda m, x: torch.stack([in_one_piece(x, *m.a.parameters()).relu().dot(each) for each in (m.one, m.other)]),
        a=Linear(3, 8), one=raw(8), other=raw(8),
    )  # fmt: skip
    assert shrunk(net, floats(3)).cut == {"a.weight": (4, 3), "a.bias": (4,), "one": (4,), "other": (4,)}
