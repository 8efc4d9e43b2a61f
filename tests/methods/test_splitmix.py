"""Split-Mix: who trains which bases, what they start from, and how they answer together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from clouds import CLIENTS, FLEET_LEVELS, everything, federation, heads, learned, serving, usable
from torch import Tensor, nn

from potluck.core.errors import ConfigError, ModelError
from potluck.core.goals.classes import Classes
from potluck.core.method import Method
from potluck.core.networks import ByWidth
from potluck.core.server import draw_cohort
from potluck.core.types import Client, Context, Job, Level, Task, Tensors, Update
from potluck.methods.splitmix import SplitMix, bases_in, due_base, sum_of_losses
from potluck.parts.ensemble import Ensemble

WIDE, MOST, HALF, QUARTER = LEVELS = (
    Level("wide", 1.0),
    Level("most", 0.75),
    Level("half", 0.5),
    Level("quarter", 0.25),
)
HEAD = ("head.weight", "head.bias")


class Tiny(nn.Module):
    """One input, eight hidden values at full width, three classes."""

    def __init__(self, width: float) -> None:
        super().__init__()
        self.body = nn.Linear(1, math.ceil(8 * width))
        self.head = nn.Linear(math.ceil(8 * width), 3)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(inputs).relu())
        return logits


class Instance:
    """A ready-made network: the same weights at every call, the first channels of them if it is to be narrow."""

    def __init__(self) -> None:
        self.net = Tiny(1.0)

    def __call__(self, width: float) -> nn.Module:
        narrow, kept = Tiny(width), math.ceil(8 * width)
        wide = self.net.state_dict()
        first = {"body.weight": wide["body.weight"][:kept], "body.bias": wide["body.bias"][:kept]}
        narrow.load_state_dict({**first, "head.weight": wide["head.weight"][:, :kept], "head.bias": wide["head.bias"]})
        return narrow


def context(levels: tuple[Level, ...] = LEVELS, model: Callable[[float], nn.Module] = Tiny, round: int = 0) -> Context:
    example = (torch.zeros(1, 1), torch.zeros(1, dtype=torch.long))
    return Context(Task(ByWidth(model), levels, 3, heads(levels, HEAD), example), round, seed=1)


def client(
    level: Level, turn: int | None = None, id: int = 0, size: int = 4, labels: tuple[int, ...] = (0, 1, 2)
) -> Client:
    return Client(id, level, size, labels, turn)


def bases_of(payload: Tensors) -> list[int]:
    return sorted({int(name.split("/")[0]) for name in payload})


@pytest.mark.parametrize(
    ("ratio", "base", "carried"),
    [(1.0, 0.25, 4), (0.75, 0.25, 3), (0.74, 0.25, 2), (0.6, 0.2, 3), (0.3, 0.1, 3), (0.33, 1 / 3, 1), (0.1, 0.25, 0)],
)
def test_a_level_carries_as_many_bases_as_fit(ratio: float, base: float, carried: int) -> None:
    assert bases_in(Level("", ratio), Level("", base), 10) == carried


def test_floating_point_loses_no_base() -> None:
    assert int(2.8 / 0.4) == 6  # what the authors' code does
    for bases in range(1, 60):
        for carried in range(1, bases + 1):
            for ratio in (carried / bases, carried * (1 / bases), round(carried / bases, 4)):
                assert bases_in(Level("", ratio), Level("", 1 / bases), bases) == carried


@pytest.mark.parametrize(
    ("ratios", "bases", "count", "base"),
    [
        ([1.0, 0.5, 0.25], None, 4, 0.25),
        ([0.5, 0.125], None, 4, 0.125),
        ([1.0, 0.64, 0.5, 0.35], None, 3, 1 / 3),  # three are the fewest of which the smallest level carries one
        ([1.0, 0.33], None, 3, 1 / 3),
        ([1.0], None, 1, 1.0),
        ([1.0, 0.5], 8, 8, 0.125),
    ],
)
def test_there_are_as_many_bases_as_let_everyone_carry_one(
    ratios: list[float], bases: int | None, count: int, base: float
) -> None:
    levels = tuple(Level(str(ratio), ratio) for ratio in ratios)
    method, ctx = SplitMix(bases=bases), context(levels)
    assert method.count(ctx) == count
    assert method.base(ctx).ratio == pytest.approx(base)
    assert all(method.admits(level, ctx) for level in levels)
    assert bases_of(method.distribute(method.init(ctx), client(levels[0]), ctx)) == list(range(count))


def test_bases_as_wide_as_is_asked_are_carried_by_the_levels_shares() -> None:
    # FedHM's journal version: 9, 3, 2 and 1 networks of width 0.35, which as shares of nine are 1, 1/3, 2/9 and 1/9.
    levels = tuple(Level(f"g{k}", ratio) for k, ratio in enumerate((1.0, 1 / 3, 2 / 9, 1 / 9), start=1))
    method, ctx = SplitMix(bases=9, width=0.35), context(levels)
    state = method.init(ctx)
    assert [len(method.chosen(client(level, turn=5), ctx)) for level in levels] == [9, 3, 2, 1]
    assert state["8/body.weight"].shape == (math.ceil(8 * 0.35), 1)
    assert sum(p.numel() for p in method.export(state, levels[1], ctx).parameters()) == 3 * (3 + 3 + 9 + 3)


def test_a_base_wider_than_the_largest_level_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"width is 0\.6, .* largest level, 'half': let width be at most .* 0\.5"):
        SplitMix(width=0.6).init(context((HALF, QUARTER)))


def test_who_cannot_carry_a_base_sits_out() -> None:
    method, ctx = SplitMix(bases=2), context()
    assert [level.name for level in LEVELS if method.admits(level, ctx)] == ["wide", "most", "half"]
    with pytest.raises(ModelError, match=r"'quarter' has ratio 0\.25, .* none of the base networks of ratio 0\.5"):
        method.export(method.init(ctx), QUARTER, ctx)


def test_a_base_starts_as_its_own_window_of_a_wide_network_of_its_own() -> None:
    method, ctx = SplitMix(), context()
    state = method.init(ctx)
    assert set(state) == {f"{k}/{name}" for k in range(4) for name in ("body.weight", "body.bias", *HEAD)}
    assert state["2/body.weight"].shape == (2, 1)
    biases = [tuple(state[f"{k}/head.bias"].tolist()) for k in range(4)]
    assert len(set(biases)) == 4  # what no width cuts is independent, too
    again = method.init(context())
    assert all(torch.equal(state[name], again[name]) for name in state)
    # a wide head reads 8 values: weights of the authors' rescaled initialisation lie within 1/sqrt(8), not 1/sqrt(2)
    assert all(state[f"{k}/head.weight"].abs().max() <= 8**-0.5 for k in range(4))


def test_bases_of_a_ready_made_network_are_cut_from_other_channels_each() -> None:
    instance = Instance()
    state = SplitMix().init(context(model=instance))
    wide = instance.net.state_dict()
    for k in range(4):
        assert torch.equal(state[f"{k}/body.bias"], wide["body.bias"][2 * k : 2 * k + 2])
        assert torch.equal(state[f"{k}/head.weight"], wide["head.weight"][:, 2 * k : 2 * k + 2])
    state["0/body.bias"].fill_(9.0)
    assert not (wide["body.bias"] == 9).any()


def test_every_pass_visits_every_base_once_in_an_order_of_its_own() -> None:
    passes = [[due_base(8 * number + at, 8, seed=3) for at in range(8)] for number in range(20)]
    assert all(sorted(order) == list(range(8)) for order in passes)
    assert len({tuple(order) for order in passes}) == 20
    assert passes[0] != [due_base(at, 8, seed=4) for at in range(8)]


def test_over_clients_and_rounds_every_base_is_trained_equally_often_by_the_smallest() -> None:
    class Everyone(Method):
        def admits(self, level: Level, ctx: Context) -> bool:
            return True

    method = SplitMix()
    site, fleet = federation(method)
    visits: Counter[int] = Counter()
    for round in range(9):
        ctx = site.context(round)
        cohort = draw_cohort(Everyone(), fleet, 5, dict.fromkeys([level.name for level in FLEET_LEVELS], 1), ctx)
        assert [asked.turn for asked in cohort] == list(range(5 * round, 5 * round + 5))
        visits.update(method.chosen(client(FLEET_LEVELS[-1], asked.turn, asked.id), ctx)[0] for asked in cohort)
    assert sorted(visits) == list(range(8))
    assert set(visits.values()) == {5, 6}  # 45 visits of 8 bases


def test_a_client_trains_what_is_due_and_others_drawn_without_replacement() -> None:
    method = SplitMix()
    others: Counter[int] = Counter()
    for turn in range(200):
        ctx = context(round=turn)
        due = due_base(turn, 4, ctx.seed)
        assert method.chosen(client(QUARTER, turn), ctx) == [due]
        chosen = method.chosen(client(HALF, turn), ctx)
        assert due in chosen
        assert len(set(chosen)) == 2
        others.update(number for number in chosen if number != due)
        assert len(set(method.chosen(client(MOST, turn), ctx))) == 3
        assert method.chosen(client(WIDE, turn), ctx) == [0, 1, 2, 3]
    assert min(others.values()) > 30


def test_clients_of_one_turn_in_other_rounds_or_of_other_numbers_draw_otherwise() -> None:
    method = SplitMix(bases=16)
    drawn = {tuple(method.chosen(client(HALF, 0, id), context(round=round))) for id in range(3) for round in range(3)}
    assert len(drawn) == 9


def test_who_is_not_to_train_has_the_first_bases() -> None:
    method, ctx = SplitMix(), context()
    assert [len(method.chosen(client(level), ctx)) for level in LEVELS] == [4, 3, 2, 1]
    assert method.chosen(client(MOST), ctx) == [0, 1, 2]


def test_a_client_sends_back_what_it_was_sent_by_the_same_names() -> None:
    method, ctx = SplitMix(), context()
    state = method.init(ctx)
    for turn in range(6):
        job = Job(client(HALF, turn), 0, method.distribute(state, client(HALF, turn), ctx))
        sent, stays = method.collect(method.localize(job, ctx, {}), job, ctx)
        assert set(sent) == set(job.payload)
        assert all(torch.equal(sent[name], state[name]) for name in sent)
        assert not stays


class Fixed(nn.Module):
    """Answers the same to every example."""

    def __init__(self, *logits: float) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.logits.expand(len(inputs), -1)


def test_members_learn_each_for_itself_and_answer_with_the_mean_of_their_logits() -> None:
    net = Ensemble([Fixed(math.log(2.0), 0.0), Fixed(0.0, math.log(4.0))])
    batch = (torch.zeros(1, 1), torch.tensor([0]))
    extra = {"mask": torch.tensor([True, True])}
    assert net(batch[0]).tolist()[0] == pytest.approx([math.log(2) / 2, math.log(2)])
    loss = sum_of_losses(Classes(), net, batch, extra)
    assert float(loss.detach()) == pytest.approx(-math.log(2 / 3) - math.log(1 / 5))
    loss.backward()
    assert net.members[0].logits.grad.tolist() == pytest.approx([2 / 3 - 1, 1 / 3])
    assert net.members[1].logits.grad.tolist() == pytest.approx([1 / 5 - 1, 4 / 5])


@pytest.mark.parametrize(
    ("masking", "loss"), [("zero", -math.log(3 / 6)), ("-inf", -math.log(3 / 5)), ("off", -math.log(3 / 12))]
)
def test_absent_classes_are_masked_as_asked_in_every_members_loss(masking: str, loss: float) -> None:
    method = SplitMix(masking=masking)  # type: ignore[arg-type]
    (phase,) = method.phases(Job(client(WIDE, labels=(0, 1)), 0, {}), context(), {})
    member = Fixed(math.log(2.0), math.log(3.0), math.log(7.0))
    net = Ensemble([member, member])
    found = phase.loss(net, (torch.zeros(1, 1), torch.tensor([1])), phase.extra)
    assert float(found.detach()) == pytest.approx(2 * loss)


def test_each_base_is_the_mean_by_examples_over_those_who_trained_it() -> None:
    method, ctx = SplitMix(), context()
    state = method.init(ctx)
    ones = [client(QUARTER, turn, turn, size) for turn, size in ((0, 10), (1, 30), (4, 30))]
    payloads = [method.distribute(state, one, ctx) for one in ones]
    assert method.chosen(ones[0], ctx) != method.chosen(ones[1], ctx)
    sent = [{name: torch.full_like(tensor, 8.0) for name, tensor in payload.items()} for payload in payloads[:2]]
    third = {name: torch.full_like(tensor, 4.0) for name, tensor in payloads[0].items()}
    updates = [*map(Update, ones[:2], sent), Update(ones[2], third)]
    after = method.aggregate(state, iter(updates), ctx)
    (first,), (second,) = method.chosen(ones[0], ctx), method.chosen(ones[1], ctx)
    assert after[f"{first}/body.bias"].tolist() == [(10 * 8 + 30 * 4) / 40] * 2
    assert after[f"{second}/body.bias"].tolist() == [8.0, 8.0]
    for other in set(range(4)) - {first, second}:
        assert torch.equal(after[f"{other}/body.bias"], state[f"{other}/body.bias"])


@pytest.mark.parametrize("ratio", [0.25, 0.3, 0.5, 0.6, 0.75, 1.0])
def test_any_width_can_be_had_after_training(ratio: float) -> None:
    method, ctx = SplitMix(), context()
    state = method.init(ctx)
    net = method.export(state, Level("made up", ratio), ctx)
    inputs = torch.tensor([[2.0], [-3.0]])
    expected = []
    for k in range(int(4 * ratio)):
        hidden = (inputs @ state[f"{k}/body.weight"].T + state[f"{k}/body.bias"]) / 0.25  # the scaler, folded
        expected.append(hidden.relu() @ state[f"{k}/head.weight"].T + state[f"{k}/head.bias"])
    torch.testing.assert_close(net(inputs), torch.stack(expected).mean(0))
    assert not net.training
    assert not any(module._forward_hooks for module in net.modules())


def test_an_export_computes_what_members_computed_in_training() -> None:
    for scaler in (True, False):
        method, ctx = SplitMix(scaler=scaler), context()
        state = method.init(ctx)
        job = Job(client(MOST), 0, method.distribute(state, client(MOST), ctx))
        inputs = torch.tensor([[2.0], [-3.0]])
        trained = method.localize(job, ctx, {}).train()
        torch.testing.assert_close(method.export(state, MOST, ctx)(inputs), trained(inputs))


def test_clients_measure_the_statistics_of_the_bases_that_are_exported() -> None:
    method = SplitMix()
    site, fleet = federation(method)
    state = method.init(site.context(0))
    assert not [name for name in state if "running" in name]
    inputs, _ = everything(site)
    net = usable(state, FLEET_LEVELS[1], site, fleet, serving(site))
    assert len(net.members) == 4
    for member in net.members:
        given = inputs @ member[0].weight.T + member[0].bias
        torch.testing.assert_close(member[1].running_mean, given.mean(0), rtol=0.2, atol=0.5)
        assert member[1].num_batches_tracked.item() >= CLIENTS


def test_one_base_is_fedavg_but_for_what_it_starts_from() -> None:
    method, ctx = SplitMix(), context((WIDE,))
    state = {f"0/{name}": tensor for name, tensor in Method().init(ctx).items()}
    one, other = client(WIDE, 0, 0, 10), client(WIDE, 1, 1, 30)
    sent = [{name: tensor + number for name, tensor in state.items()} for number in (1.0, 3.0)]
    ours = method.aggregate(state, [Update(one, sent[0]), Update(other, sent[1])], ctx)
    plain = [{name.removeprefix("0/"): tensor for name, tensor in each.items()} for each in (state, *sent)]
    theirs = Method().aggregate(plain[0], [Update(one, plain[1]), Update(other, plain[2])], ctx)
    assert all(torch.equal(ours[f"0/{name}"], theirs[name]) for name in theirs)


def test_it_learns_at_every_level_though_no_client_has_every_class() -> None:
    found = learned(SplitMix())
    # Chance is 0.25. Over four seeds the lowest were 0.953, 0.93, 0.902 and 0.85.
    assert min(found["full"], found["half"], found["quarter"]) > 0.85, found
    assert found["eighth"] > 0.75, found
