"""The two tasks in pfl (Apple's pfl-research): SimulatedBackend and FederatedAveraging, users' data in memory.

One process trains all clients of a round in turn. With --processes P the script starts itself P times under torchrun,
pfl's own way to spread a round: each process trains its share, and torch.distributed (gloo on a CPU) sums the updates.

pfl evaluates users in its round 0 whatever it is asked, so round 0 is the warm-up and the clock starts after it.

python benchmarks/rivals/pfl_rival.py lr --data FILE.safetensors --rounds 20 [--processes 2]
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path

import networks
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

UNDER_TORCHRUN = "TORCHELASTIC_RUN_ID" in os.environ


def spread(processes: int) -> int:
    """Run this same command in several processes; the exit code of it all."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    quiet = os.environ | {"OMP_NUM_THREADS": "1"}
    finished = subprocess.run([*torchrun, str(Path(__file__).resolve()), *sys.argv[1:]], env=quiet, check=False)
    if finished.returncode:
        print(f"pfl failed in {processes} processes; torchrun says more above.", file=sys.stderr)
    return int(finished.returncode != 0)


def measure(asked: Namespace) -> None:
    """Train, and report from the first process."""
    # pfl joins the process group when it is imported, so only a process that trains may import it.
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import MinimizeReuseUserSampler
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.internal.ops.pytorch_ops import distributed
    from pfl.metrics import Weighted
    from pfl.model.pytorch import PyTorchModel

    class Network(nn.Module):
        """A network with the two methods that pfl asks for."""

        def __init__(self, layers: nn.Module) -> None:
            super().__init__()
            self.layers = layers

        def loss(self, x: Tensor, y: Tensor) -> Tensor:
            if not self.training:  # train() walks through all layers: not at every step
                self.train()
            return F.cross_entropy(self.layers(x), y)

        @torch.no_grad()
        def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
            self.eval()
            return {"loss": Weighted(F.cross_entropy(self.layers(x), y, reduction="sum").item(), len(y))}

    class Clock(TrainingProcessCallback):
        """The seconds from the end of round 0 to the end of training."""

        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
            if central_iteration == 0:
                self.started = time.perf_counter()
            return super().after_central_iteration(aggregate_metrics, model, central_iteration=central_iteration)

        def on_train_end(self, *, model):
            self.seconds = time.perf_counter() - self.started

    data = networks.read_data(asked.task, asked.data)
    layers = networks.network(asked.task)
    np.random.seed(networks.SEED)  # pfl draws the cohort in every process alike
    torch.manual_seed(networks.SEED + distributed.global_rank)  # and dropout in each for itself

    net = Network(layers)
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    users = [PyTorchTensorDataset(data.client(at), user_id=str(at)) for at in range(networks.CLIENTS)]
    order = np.random.permutation(networks.CLIENTS).tolist()
    dataset = FederatedDataset(users.__getitem__, MinimizeReuseUserSampler(order))

    clock = Clock()
    rounds = 1 + asked.rounds
    FederatedAveraging().run(
        # Users weigh 1 each unless told otherwise, which is the plain average.
        NNAlgorithmParams(rounds, rounds, networks.CLIENTS_PER_ROUND, val_cohort_size=0),
        SimulatedBackend(training_data=dataset, val_data=dataset),
        model,
        NNTrainHyperParams(
            local_num_epochs=1,
            local_learning_rate=networks.LEARNING_RATES[asked.task],
            local_batch_size=networks.BATCH,
        ),
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[clock],
        send_metrics_to_platform=False,
    )
    if distributed.global_rank == 0:
        networks.report("pfl", "pfl", asked, clock.seconds, networks.accuracy(layers, data))
    if UNDER_TORCHRUN:
        torch.distributed.destroy_process_group()


def main() -> int:
    """Train here, or in several processes."""
    asked = networks.arguments("Federated averaging in pfl", processes=1)
    networks.read_data(asked.task, asked.data)  # a bad file ends it here, with one message
    if asked.processes > 1 and not UNDER_TORCHRUN:
        return spread(asked.processes)
    torch.set_num_threads(1)
    measure(asked)
    return 0


if __name__ == "__main__":
    sys.exit(main())
