"""The floor: the same federation as a bare PyTorch loop, in processes of its own, with no framework at all.

Each process keeps one network and its data, copies the global weights in, takes the steps, and adds the result to a sum
in shared memory; at the end of a round the sums are averaged. Nothing is checked, recorded or resumable.
"""

from __future__ import annotations

import time
from multiprocessing.synchronize import Barrier

import torch
import torch.multiprocessing as mp
from tasks import BATCH, CLIENTS, COHORT, CONTESTS, EXAMPLES
from torch import Tensor, nn


def work(
    task: str,
    rounds: int,
    place: int,
    places: int,
    shared: list[Tensor],
    sums: list[list[Tensor]],
    meet: Barrier,
    took: Tensor,
) -> None:
    """One process: its share of every round's clients."""
    torch.set_num_threads(1)
    contest = CONTESTS[task]
    data, net = contest.tensors(), contest.model(1.0)
    inputs, targets = data["train_x"], data["train_y"]
    parameters = list(net.parameters())
    net.train()
    for number in range(rounds + 1):  # the first is to warm up
        meet.wait()
        if number == 1:
            started = time.perf_counter()
        drawn = torch.randperm(CLIENTS, generator=torch.Generator().manual_seed(number))[:COHORT].tolist()
        for total in sums[place]:
            total.zero_()
        for client in drawn[place::places]:
            with torch.no_grad():
                for parameter, value in zip(parameters, shared, strict=True):
                    parameter.copy_(value)
            optimizer = torch.optim.SGD(parameters, lr=contest.lr)
            for held in torch.split(torch.randperm(EXAMPLES) + EXAMPLES * client, BATCH):
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(inputs[held]), targets[held]).backward()
                optimizer.step()
            with torch.no_grad():
                for parameter, total in zip(parameters, sums[place], strict=True):
                    total.add_(parameter)
        meet.wait()
        if place == 0:
            for value, *totals in zip(shared, *sums, strict=True):
                value.copy_(torch.stack(totals).sum(0) / COHORT)
    meet.wait()
    if place == 0:
        took.fill_(time.perf_counter() - started)


def trainings_per_second(task: str, processes: int) -> float:
    """How many clients a bare loop trains in a second."""
    contest = CONTESTS[task]
    shared = [parameter.detach().clone().share_memory_() for parameter in contest.model(1.0).parameters()]
    sums = [[torch.zeros_like(value).share_memory_() for value in shared] for _ in range(processes)]
    took = torch.zeros(()).share_memory_()
    context = mp.get_context("spawn")
    meet = context.Barrier(processes)
    running = [
        context.Process(target=work, args=(task, contest.rounds, place, processes, shared, sums, meet, took))
        for place in range(processes)
    ]
    for process in running:
        process.start()
    for process in running:
        process.join()
    return contest.rounds * COHORT / float(took)
