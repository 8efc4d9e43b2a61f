"""FedRolex: a client trains a window of every layer's channels, and the window rolls on by one each round.

Alam, Liu, Yan, Zhang: FedRolex: Model-Heterogeneous Federated Learning with Rolling Sub-Model
Extraction (NeurIPS 2022).

In round t a client of k channels of n holds {t, …, t + k - 1} mod n of every layer. One counter serves
all layers, each goes round at its own n. So every channel is trained equally often, by narrow clients
too, and the global network may be wider than any client's. Everything else is HeteroFL's, as in the
authors' code: scaling, static batch norm, masked cross-entropy, the mean over the holders.

Departures:
- The window moves forward, as the paper writes it; the authors' code moves it backward. Channels keep
  their order in a window that wraps. Both are a matter of names.
- An exported narrow network is the window of the last round that was played: that sub-network was the
  last one to be trained as a whole. The paper only evaluates the global network.
- Batch-norm statistics are measured by the clients, as in HeteroFL; the authors' code uses those of
  the test batch.
- Every scalar is the plain mean over its holders. In the authors' code norms, biases and the head are weighted by
  a count of updates that goes on from client to client within a round, so that later clients weigh more.
- In a dimension made of several parts (heads, gates) the window rolls inside each part.
- `per_size = "norms"` is not FedRolex's but NeFL's idea: each size has its own normalisation layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from potluck.core.types import Context
from potluck.parts.cut.choice import Choice, Rolling
from potluck.parts.width.method import WidthMethod


@dataclass(frozen=True)
class FedRolex(WidthMethod):
    """Each client trains a window of every layer's channels that rolls on by one each round."""

    paper: ClassVar[str] = "Alam, Liu, Yan, Zhang: FedRolex (NeurIPS 2022)"

    def choice(self, ctx: Context) -> Choice:
        """{t, …, t + k - 1} mod n of every layer (sec. 3.2)."""
        return Rolling(ctx.round)
