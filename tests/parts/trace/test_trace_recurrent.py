"""Recurrent layers and cells, whose gates are rows laid end to end."""

from __future__ import annotations

import pytest
import torch
from hand_made import Net, floats, shrunk, tokens
from torch import Tensor, nn
from torch.nn import Linear
from torch.nn.utils.rnn import pack_padded_sequence

GATES = {nn.LSTM: 4, nn.GRU: 3, nn.RNN: 1}


def half_of_each(gates: int, size: int = 6) -> list[int]:
    """The first half of every gate's rows."""
    return [gate * size + row for gate in range(gates) for row in range(size // 2)]


@pytest.mark.parametrize("more", [{}, {"proj_size": 4}], ids=["plain", "projected"])
@pytest.mark.parametrize("cell", GATES)
def test_one_step_tells_as_much_as_several(cell: type[nn.RNNBase], more: dict[str, int]) -> None:
    """It starts from zeros, so nothing that runs shows that its state is what the next step reads."""
    if more and cell is not nn.LSTM:
        pytest.skip("only LSTMs have projections")
    rnn = cell(3, 6, num_layers=2, bidirectional=True, batch_first=True, **more)
    net = Net(lambda m, x: m.out(m.rnn(x)[0][:, -1]), rnn=rnn, out=Linear(2 * more.get("proj_size", 6), 2))
    once, often = (shrunk(net, floats(2, steps, 3)) for steps in (1, 4))
    assert once.cut == often.cut
    assert once.narrow(floats(2, 4, 3)).shape == (2, 2)


def test_padding_alone_is_a_packed_sequence_of_one_step() -> None:
    def run(m: Net, x: Tensor) -> Tensor:
        lengths = (x != 0).sum(1).clamp_min(1)
        packed = pack_padded_sequence(m.stem(x), lengths, batch_first=True, enforce_sorted=False)
        return m.out(m.rnn(packed)[1][0][-1])

    net = Net(run, stem=nn.Embedding(10, 4), rnn=nn.LSTM(4, 6, batch_first=True), out=Linear(6, 2))
    assert shrunk(net, torch.zeros(2, 5, dtype=torch.long)).cut["rnn.weight_hh_l0"] == (12, 3)


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_a_cell_that_steps_once(cell: type[nn.RNNCellBase]) -> None:
    def run(m: Net, x: Tensor) -> Tensor:
        state = m.cell(x)
        return m.out(state[0] if isinstance(state, tuple) else state)

    seen = shrunk(Net(run, cell=cell(3, 6), out=Linear(6, 2)), floats(2, 3))
    assert seen.cut["cell.weight_hh"][1] == seen.narrow.cell.hidden_size == 3


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("cell", GATES)
def test_gates_are_cut_alike(cell: type[nn.RNNBase], bias: bool) -> None:
    net = Net(
        lambda m, x: m.out(m.rnn(m.stem(x))[0][:, -1]),
        stem=nn.Embedding(10, 4), rnn=cell(4, 6, bias=bias, batch_first=True), out=Linear(6, 2),
    )  # fmt: skip
    seen = shrunk(net, tokens(2, 5))
    assert seen.kept("rnn.weight_ih_l0") == seen.kept("rnn.weight_hh_l0") == half_of_each(GATES[cell])
    assert seen.cut["rnn.weight_ih_l0"] == (3 * GATES[cell], 2)
    assert seen.cut["rnn.weight_hh_l0"] == (3 * GATES[cell], 3)
    assert [size for size, _ in seen.blocks] in ([4, 6], [6, 4])
    assert (seen.narrow.rnn.input_size, seen.narrow.rnn.hidden_size) == (2, 3)


@pytest.mark.parametrize("cell", GATES)
def test_both_directions_and_several_layers(cell: type[nn.RNNBase]) -> None:
    net = Net(
        lambda m, x: m.out(m.rnn(x)[0]),
        rnn=cell(3, 6, num_layers=2, bidirectional=True, batch_first=True), out=Linear(12, 2),
    )  # fmt: skip
    seen = shrunk(net, floats(2, 5, 3))
    assert [size for size, _ in seen.blocks] == [6]  # the last states are stacked: one size for all
    assert seen.kept("out.weight", 1) == half_of_each(2)
    assert seen.kept("rnn.weight_ih_l1", 1) == half_of_each(2)
    assert seen.kept("rnn.weight_hh_l0_reverse") == half_of_each(GATES[cell])


def test_the_last_states_of_both_directions_joined() -> None:
    def run(m, x):
        _, state = m.rnn(x)
        return m.out(torch.cat([state[-2], state[-1]], 1))

    net = Net(run, rnn=nn.GRU(3, 6, bidirectional=True, batch_first=True), out=Linear(12, 2))
    seen = shrunk(net, floats(2, 5, 3))
    assert seen.kept("out.weight", 1) == half_of_each(2)
    assert seen.narrow.rnn.hidden_size == 3


def test_a_projected_state_is_a_layer_of_its_own() -> None:
    net = Net(lambda m, x: m.out(m.rnn(x)[0]), rnn=nn.LSTM(3, 8, proj_size=4, batch_first=True), out=Linear(4, 2))
    seen = shrunk(net, floats(2, 5, 3))
    assert seen.blocks == [
        (4, "rnn.weight_hh_l0[1] rnn.weight_hr_l0[0] out.weight[1]"),
        (8, "rnn.weight_ih_l0[0] rnn.weight_hh_l0[0] rnn.bias_ih_l0[0] rnn.bias_hh_l0[0] rnn.weight_hr_l0[1]"),
    ]
    assert seen.cut["rnn.weight_hr_l0"] == (2, 4)
    assert (seen.narrow.rnn.hidden_size, seen.narrow.rnn.proj_size) == (4, 2)


def test_states_given_from_outside() -> None:
    def run(m, x):
        start = m.start.expand(-1, x.shape[0], -1).contiguous()
        return m.out(m.rnn(x, (start, torch.zeros_like(start)))[0])

    net = Net(run, rnn=nn.LSTM(3, 6, batch_first=True), out=Linear(6, 2), start=nn.Parameter(torch.zeros(1, 1, 6)))
    assert shrunk(net, floats(2, 5, 3)).cut["start"] == (1, 1, 3)


@pytest.mark.parametrize(("cell", "gates"), [(nn.LSTMCell, 4), (nn.GRUCell, 3), (nn.RNNCell, 1)])
def test_cells_in_a_loop(cell: type[nn.RNNCellBase], gates: int) -> None:
    def run(m, x):
        state = x.new_zeros(x.shape[0], m.cell.hidden_size)
        state = (state, state) if gates == 4 else state
        for step in range(x.shape[1]):
            state = m.cell(x[:, step], state)
        return m.out(state[0] if gates == 4 else state)

    seen = shrunk(Net(run, cell=cell(3, 6), out=Linear(6, 2)), floats(2, 4, 3))
    assert seen.kept("cell.weight_hh") == half_of_each(gates)
    assert [size for size, _ in seen.blocks] == [6]
    assert (seen.narrow.cell.input_size, seen.narrow.cell.hidden_size) == (3, 3)


def test_states_written_into_zeros() -> None:
    def run(m, x):
        states = x.new_zeros(x.shape[0], x.shape[1], m.cell.hidden_size)
        state = x.new_zeros(x.shape[0], m.cell.hidden_size)
        for step in range(x.shape[1]):
            state = m.cell(x[:, step], state)
            states[:, step] = state
        return m.out(states)

    seen = shrunk(Net(run, cell=nn.GRUCell(3, 6), out=Linear(6, 2)), floats(2, 4, 3))
    assert seen.cut["out.weight"] == (2, 3)
    assert [size for size, _ in seen.blocks] == [6]


def test_states_in_a_list_that_is_stacked() -> None:
    def run(m, x):
        state, states = None, []
        for step in range(x.shape[1]):
            state = m.cell(x[:, step], state)
            states.append(state)
        return m.out(torch.stack(states, 1))

    seen = shrunk(Net(run, cell=nn.GRUCell(3, 6), out=Linear(6, 2)), floats(2, 4, 3))
    assert seen.cut["out.weight"] == (2, 3)


def test_packed_sequences() -> None:
    def run(m, x):
        packed = nn.utils.rnn.pack_padded_sequence(m.stem(x), torch.tensor([4, 2]), batch_first=True)
        return m.out(nn.utils.rnn.pad_packed_sequence(m.rnn(packed)[0], batch_first=True)[0])

    net = Net(run, stem=Linear(3, 4), rnn=nn.LSTM(4, 6, batch_first=True), out=Linear(6, 2))
    seen = shrunk(net, floats(2, 4, 3))
    assert seen.cut["rnn.weight_ih_l0"] == (12, 2)
