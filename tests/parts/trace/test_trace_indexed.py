"""Reading and writing by index: along the indexed dimension all stays, across it channels go together."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hand_made import Net, floats, raw, see, shrunk, tokens
from torch import Tensor, nn
from torch.nn import Conv2d, Linear

EDGES = torch.tensor([0, 1, 1, 2, 3, 3]), torch.tensor([1, 0, 2, 1, 0, 2])


def added(x, target):
    return x.new_zeros(4, x.shape[1]).scatter_add_(0, target[:, None].expand_as(x), x)


def largest(x, target):
    zeros = x.new_zeros(4, x.shape[1])
    return zeros.scatter_reduce(0, target[:, None].expand_as(x), x, "amax", include_self=False)


def repeated_index(x, target):
    return x.new_zeros(4, x.shape[1]).scatter_add(0, target[:, None].repeat(1, x.shape[1]), x)


def put(x, target):
    return x.new_zeros(4, x.shape[1]).index_put((target,), x, accumulate=True)


def put_in_place(x, target):
    result = x.new_zeros(4, x.shape[1])
    result[target] = x
    return result


def reduced(x, target):
    return x.new_zeros(4, x.shape[1]).index_reduce(0, target, x, "mean", include_self=False)


WRITES = [added, largest, repeated_index, put, put_in_place, reduced]


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_messages_between_nodes_of_a_graph(write) -> None:
    source, target = EDGES

    def run(m, x):
        x = m.stem(x)
        for layer in (m.first, m.second):
            x = layer(write(x[source], target) + x).relu()
        return m.out(x)

    net = Net(run, stem=Linear(3, 8), first=Linear(8, 8), second=Linear(8, 6), out=Linear(6, 2))
    seen = shrunk(net, floats(4, 3))
    assert seen.cut["first.weight"] == (4, 4)
    assert seen.cut["second.weight"] == (3, 4)


def test_attention_over_the_edges_of_a_graph() -> None:
    source, target = EDGES

    def run(m, x):
        x = m.a(x).view(4, 2, -1)
        score = (x * m.attend).sum(-1)[source].exp()
        total = score.new_zeros(4, 2).scatter_add_(0, target[:, None].expand_as(score), score)
        messages = x[source] * (score / (total[target] + 1e-16)).unsqueeze(-1)
        gathered = x.new_zeros(x.shape).scatter_add_(0, target.view(-1, 1, 1).expand_as(messages), messages)
        return m.out(gathered.flatten(1))

    seen = shrunk(Net(run, a=Linear(3, 8), attend=raw(1, 2, 4), out=Linear(8, 2)), floats(4, 3))
    assert seen.cut == {"attend": (1, 2, 2), "a.weight": (4, 3), "a.bias": (4,), "out.weight": (2, 4)}


def test_channels_written_by_index_stay() -> None:
    order = torch.tensor([3, 1, 0, 2])
    net = Net(lambda m, x: m.out(torch.zeros(2, 4).index_add(1, order, m.a(x))), a=Linear(3, 4), out=Linear(4, 2))
    seen = see(net, floats(2, 3))
    assert not seen.plan.narrowed
    assert "written by index" in seen.why("a.weight")


def test_a_mask_over_two_dimensions_leaves_the_third_free() -> None:
    def run(m, x):
        mask = torch.zeros(x.shape[:2], dtype=torch.bool)
        mask[:, 1:3] = True
        hidden = m.a(x)
        hidden[mask] = m.token
        return m.out(hidden)

    seen = shrunk(Net(run, a=Linear(3, 8), token=raw(8), out=Linear(8, 2)), floats(2, 5, 3))
    assert seen.cut == {"token": (4,), "a.weight": (4, 3), "a.bias": (4,), "out.weight": (2, 4)}


def test_rows_put_where_a_mask_is() -> None:
    def run(m, text, picture):
        words, seen = m.words(text), m.a(picture)
        return m.out(words.masked_scatter((text == 0).unsqueeze(-1).expand_as(words), seen))

    text = torch.tensor([[3, 0, 0, 5]])
    seen = shrunk(Net(run, words=nn.Embedding(8, 6), a=Linear(4, 6), out=Linear(6, 2)), text, floats(2, 4))
    assert seen.cut == {"words.weight": (8, 3), "a.weight": (3, 4), "a.bias": (3,), "out.weight": (2, 3)}


def test_experts_that_each_multiply_their_own_tokens() -> None:
    ends = torch.tensor([2, 3, 5], dtype=torch.int32)

    def run(m, x):
        hidden = torch._grouped_mm(m.stem(x), m.up.transpose(1, 2), offs=ends).relu()
        return m.out(torch._grouped_mm(hidden, m.down.transpose(1, 2), offs=ends))

    net = Net(run, stem=Linear(3, 16), up=raw(3, 32, 16), down=raw(3, 16, 32), out=Linear(16, 2))
    seen = shrunk(net, floats(5, 3))
    assert seen.cut["up"] == (3, 16, 8)
    assert seen.cut["down"] == (3, 8, 16)


def test_an_expert_that_no_token_goes_to_is_cut_like_the_others() -> None:
    def run(m, x):
        x = m.stem(x)
        result = torch.zeros_like(x)
        for number, expert in enumerate((m.first, m.second)):
            rows = (torch.arange(len(x)) % 2 == 2 * number).nonzero().flatten()
            result.index_add_(0, rows, expert(x[rows].view(-1, x.shape[1])).relu())
        return m.out(result)

    net = Net(run, stem=Linear(3, 8), first=Linear(8, 8), second=Linear(8, 8), out=Linear(8, 2))
    assert shrunk(net, floats(5, 3)).cut["second.weight"] == (4, 4)


def test_patches_are_laid_over_each_other_again() -> None:
    def run(m, x):
        x = m.a(x)
        patches = F.unfold(x, 3, padding=1)
        return m.out(F.fold(patches * 0.5, x.shape[-2:], 3, padding=1))

    assert shrunk(Net(run, a=Conv2d(3, 8, 1), out=Conv2d(8, 2, 1)), floats(1, 3, 5, 5)).cut["a.weight"] == (4, 3, 1, 1)


def test_windows_that_overlap_in_memory() -> None:
    def run(m, x):
        x = m.a(x).contiguous()
        batch, length, size = x.shape
        windows = x.as_strided((batch, length - 2, 3, size), (length * size, size, size, 1))
        return m.out(windows.mean(2))

    assert shrunk(Net(run, a=Linear(3, 8), out=Linear(8, 2)), floats(2, 6, 3)).cut["a.weight"] == (4, 3)


def test_halves_written_into_one_tensor() -> None:
    def run(m, x):
        one, other = m.a(x), m.b(x)
        both = one.new_empty(len(x), one.shape[1] + other.shape[1])
        both[:, : one.shape[1]] = one
        both[:, one.shape[1] :] = other
        return m.out(both)

    seen = shrunk(Net(run, a=Linear(3, 8), b=Linear(3, 4), out=Linear(12, 2)), floats(2, 3))
    assert seen.kept("out.weight", 1) == [0, 1, 2, 3, 8, 9]


def test_distances_between_rows() -> None:
    net = Net(lambda m, x: torch.cdist(m.a(x), m.codes), a=Linear(3, 8), codes=raw(5, 8))
    assert shrunk(net, floats(2, 3)).cut == {"codes": (5, 4), "a.weight": (4, 3), "a.bias": (4,)}


def test_tokens_picked_by_their_score() -> None:
    def run(m, x):
        hidden = m.a(x)
        best = m.score(hidden).squeeze(-1).topk(2, dim=1).indices
        return m.out(hidden.gather(1, best.unsqueeze(-1).expand(-1, -1, hidden.shape[-1])))

    assert shrunk(Net(run, a=Linear(3, 8), score=Linear(8, 1), out=Linear(8, 2)), floats(2, 5, 3)).cut["a.weight"] == (
        4,
        3,
    )


def test_a_table_read_by_token_keeps_its_rows() -> None:
    net = Net(lambda m, x: m.out(m.table[x]), table=raw(10, 8), out=Linear(8, 2))
    assert shrunk(net, tokens(1, 5)).cut == {"table": (10, 4), "out.weight": (2, 4)}


def test_an_expert_that_gets_no_tokens_is_cut_like_the_others() -> None:
    """Rows of (batch, tokens) that a mask picks, seen as (batch · tokens)."""

    def run(m: Net, x: Tensor) -> Tensor:
        x = m.stem(x)
        for number, expert in enumerate(m.experts):
            mine = torch.tensor([0, 0]) == number
            x = x.index_put((mine,), expert(x[mine]))
        return m.head(x)

    net = Net(run, stem=Linear(3, 8), experts=nn.ModuleList([Linear(8, 8), Linear(8, 8)]), head=Linear(8, 2))
    seen = shrunk(net, floats(2, 5, 3))
    assert seen.cut["experts.1.weight"] == seen.cut["experts.0.weight"] == (4, 4)


# ---- what has to stay ----


def why_it_stays(net: nn.Module, *example: torch.Tensor) -> str:
    """Why no channel of the layer `a` can go."""
    seen = see(net, *example)
    assert "a.weight" not in seen.cut
    return str(seen.why("a.weight"))


def test_channels_read_by_index_behind_a_mask_stay() -> None:
    mask, places = torch.eye(2, 5) > 0, torch.tensor([6, 1])
    net = Net(lambda m, x: m.out(m.a(x)[mask, places]), a=Linear(3, 8), out=Linear(2, 2))
    assert "read by index" in why_it_stays(net, floats(2, 5, 3))


def test_a_mask_under_which_nothing_is_hides_no_channels() -> None:
    def run(m, x):
        hidden = m.a(x)
        mask = torch.zeros(x.shape[:2], dtype=torch.bool)
        hidden[mask] = m.b(hidden[mask])
        return m.out(hidden)

    seen = shrunk(Net(run, a=Linear(3, 8), b=Linear(8, 8), out=Linear(8, 2)), floats(2, 5, 3))
    assert seen.cut["b.weight"] == (4, 4)


def test_indices_that_are_not_side_by_side_come_first_in_what_is_written() -> None:
    rows, columns = torch.tensor([0, 2, 1]), torch.tensor([3, 0, 1])

    def run(m, x):
        hidden = m.a(x).transpose(1, 2)  # (index, channel, 2)
        result = hidden.new_zeros(hidden.shape[1], 3, 2, 4)
        result[:, rows, :, columns] = hidden
        return m.out(result.sum((1, 2, 3)))

    assert shrunk(Net(run, a=Linear(3, 8), out=Linear(8, 2)), floats(3, 2, 3)).cut["a.weight"] == (4, 3)


def test_channels_written_into_a_part_of_what_is_there_stay() -> None:
    def run(m, x):
        index = torch.tensor([[0, 1, 2, 3], [3, 2, 1, 0]])  # for four of six channels
        return m.out(torch.zeros(4, 8).scatter_add(0, index, m.a(x)))

    assert why_it_stays(Net(run, a=Linear(3, 6), out=Linear(8, 2)), floats(2, 3))


def test_channels_of_which_the_first_are_read_by_index_stay() -> None:
    index = torch.tensor([[0, 4, 2, 1], [3, 3, 0, 0]])
    net = Net(lambda m, x: m.out(m.a(x).gather(0, index)), a=Linear(3, 8), out=Linear(4, 2))
    assert "read by index" in why_it_stays(net, floats(5, 3))


def test_values_laid_out_in_rows_of_another_length_stay() -> None:
    def run(m, x):
        mask = torch.tensor([True, False, True, True])[:, None].expand(4, 6)
        return m.out(torch.zeros(4, 6).masked_scatter(mask, m.a(x)))

    assert why_it_stays(Net(run, a=Linear(3, 8), out=Linear(6, 2)), floats(3, 3))


def test_what_is_used_as_an_index_stays() -> None:
    def run(m, x):
        return m.out(m.table[(m.a(x) > 0).long().sum(0)])

    net = Net(run, a=Linear(3, 8), table=raw(5, 6), out=Linear(6, 2))
    assert "used as an index" in why_it_stays(net, floats(4, 3))


def test_channels_written_as_rows_by_index_stay() -> None:
    order = torch.tensor([3, 1, 0, 2, 7, 6, 5, 4])

    def run(m, x):
        return m.out(torch.zeros(8, 2).index_put((order,), m.a(x).T))

    assert "written by index" in why_it_stays(Net(run, a=Linear(3, 8), out=Linear(2, 2)), floats(2, 3))
