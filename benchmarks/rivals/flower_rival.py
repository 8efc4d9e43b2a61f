"""The two tasks in Flower's simulation: a ServerApp with FedAvg, a ClientApp on Ray actors of one CPU each.

The message API: weights travel as an ArrayRecord and go into a network that each actor builds once. An actor also reads
the data once. Both happen in a warm-up round, a FedAvg run of its own on the same actors; then the clock starts.

With `--tutorial` clients are as in Flower's tutorials: each builds its network and a DataLoader, and an actor has the
resources that Flower gives it by default.

python benchmarks/rivals/flower_rival.py lr --data FILE.safetensors --rounds 20 [--processes 2] [--tutorial]
"""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}

import networks
import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

client_app = ClientApp()


@cache
def own_network(task: str) -> nn.Module:
    """This actor's network, which every client it plays overwrites."""
    torch.set_num_threads(1)
    return networks.network(task).train()


def own_batches(x: Tensor, y: Tensor, tutorial: bool) -> Iterable[Sequence[Tensor]]:
    """One epoch of one client's examples."""
    if tutorial:
        return DataLoader(TensorDataset(x, y), networks.BATCH, shuffle=True)
    return zip(x.split(networks.BATCH), y.split(networks.BATCH), strict=True)


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """One epoch over one client's examples."""
    config = message.content["config"]
    task = config["task"]
    net = networks.network(task).train() if config["tutorial"] else own_network(task)
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = networks.read_data(task, config["data"]).client(context.node_config["partition-id"])
    optimizer = torch.optim.SGD(net.parameters(), lr=networks.LEARNING_RATES[task])
    for inputs, labels in own_batches(x, y, config["tutorial"]):
        optimizer.zero_grad()
        F.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
    metrics = MetricRecord({"num-examples": len(y)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)


class EveryClientCounts(FedAvg):
    """FedAvg that ends the run when a client failed: Flower's would average the rest and go on."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        trained = sum(not reply.has_error() for reply in replies)
        if trained != networks.CLIENTS_PER_ROUND:
            raise RuntimeError(f"{trained} clients trained in round {server_round}, not {networks.CLIENTS_PER_ROUND}.")
        return super().aggregate_train(server_round, replies)


def measure(asked: Namespace) -> tuple[float, ArrayRecord]:
    """The seconds of the rounds after the warm-up, and the weights they end with."""
    server_app = ServerApp()
    results: list[tuple[float, ArrayRecord]] = []

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        strategy = EveryClientCounts(
            fraction_train=networks.CLIENTS_PER_ROUND / networks.CLIENTS,
            fraction_evaluate=0.0,
            min_train_nodes=networks.CLIENTS_PER_ROUND,
            min_available_nodes=networks.CLIENTS,
        )
        config = ConfigRecord({"task": asked.task, "data": asked.data, "tutorial": asked.tutorial})
        arrays = ArrayRecord(networks.network(asked.task).state_dict())
        arrays = strategy.start(grid, arrays, num_rounds=1, train_config=config).arrays
        started = time.perf_counter()
        arrays = strategy.start(grid, arrays, num_rounds=asked.rounds, train_config=config).arrays
        results.append((time.perf_counter() - started, arrays))

    run_simulation(
        server_app,
        client_app,
        num_supernodes=networks.CLIENTS,
        backend_config={
            "init_args": {"num_cpus": asked.processes},
            **({} if asked.tutorial else {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}),
        },
    )
    if not results:
        sys.exit("Flower's server ended without a result; its log says more above.")
    return results[0]


def main() -> None:
    """Train, evaluate, report."""
    asked = networks.arguments("Federated averaging in Flower's simulation", processes=2, tutorial=True)
    torch.set_num_threads(1)
    asked.data = str(Path(asked.data).resolve())  # an actor has a working directory of its own
    data = networks.read_data(asked.task, asked.data)
    with TemporaryDirectory() as home:
        os.environ["FLWR_HOME"] = home  # Flower writes an id there even with its telemetry off
        seconds, arrays = measure(asked)
    net = networks.network(asked.task)
    net.load_state_dict(arrays.to_torch_state_dict())
    networks.report("flower", "flwr", asked, seconds, networks.accuracy(net, data))


if __name__ == "__main__":
    # By its own name this module travels to the actors as a name; as __main__ it would be sent whole with every client.
    import flower_rival

    flower_rival.main()
