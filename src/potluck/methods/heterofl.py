"""HeteroFL: a client trains the first channels of every layer, as many as its level carries.

Diao, Ding, Tarokh: HeteroFL: Computation and Communication Efficient Federated Learning for
Heterogeneous Clients (ICLR 2021).

The narrow network is the top-left corner of the wide one, so its weights are averaged into that
corner: every scalar is the mean over the clients that hold it. Narrow networks scale their layers'
outputs in training, keep no batch-norm statistics (clients measure them when a model is to be
used), and ignore the classes a client does not have.

Departures:
- The network is plain; the Scaler is put in by hooks after every narrowed convolution, linear and
  embedding layer but the head. The authors put it in front of the norms; division is linear, so
  this is the same function.
- Exported narrow networks have the scaling folded into their weights, so that they compute what
  they computed in training. The paper only ever uses the widest network, which has no scaling.
- Batch-norm statistics are gathered from the clients as sums per batch. The authors' code passes
  over the pooled training data, which only a simulator can do; their mean of per-batch statistics
  is kept, batches just do not mix clients. Each level gets statistics of its own.
- In a dimension made of several parts (heads, gates) the first channels of every part are kept, as
  the authors do for their transformer's heads.
- `per_size = "norms"` is not HeteroFL's but NeFL's idea: each size has its own normalisation layers.
- The mask's embedding is averaged like any other; the authors' code never updates it.
- A single leftover example joins the batch before it instead of being a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from potluck.core.types import Context
from potluck.parts.cut.choice import Choice, Prefix
from potluck.parts.width.method import WidthMethod


@dataclass(frozen=True)
class HeteroFL(WidthMethod):
    """Each client trains the first channels of every layer; each weight is averaged over its holders."""

    paper: ClassVar[str] = "Diao, Ding, Tarokh: HeteroFL (ICLR 2021)"

    def choice(self, ctx: Context) -> Choice:
        """W[:d, :k] (sec. 2.1)."""
        return Prefix()
