"""Graph networks over a dense adjacency matrix: mean of the neighbours, and attention to them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class GraphConv(nn.Module):
    """A (X W), with A's rows divided by their sums, plus the node's own part."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(out_features))
        self.own = nn.Linear(in_features, out_features, bias=False)
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        degree = adj.sum(-1, keepdim=True).clamp(min=1)
        support = torch.matmul(x, self.weight)
        return torch.matmul(adj / degree, support) + self.own(x) + self.bias


class GCN(nn.Module):
    """Three layers, a class per graph."""

    def __init__(self, nfeat: int, nhid: int, nclass: int) -> None:
        super().__init__()
        self.gc1 = GraphConv(nfeat, nhid)
        self.gc2 = GraphConv(nhid, nhid)
        self.gc3 = GraphConv(nhid, nhid)
        self.readout = nn.Linear(2 * nhid, nclass)

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(F.relu(self.gc2(x, adj)), 0.1, training=self.training)
        x = F.relu(self.gc3(x, adj))
        return self.readout(torch.cat([x.mean(dim=1), x.max(dim=1)[0]], dim=-1))


class GATLayer(nn.Module):
    """One score per edge from the two nodes' features; several heads concatenated."""

    def __init__(self, in_features: int, out_per_head: int, heads: int) -> None:
        super().__init__()
        self.heads, self.out_per_head = heads, out_per_head
        self.fc = nn.Linear(in_features, heads * out_per_head, bias=False)
        self.a_src = nn.Parameter(torch.randn(heads, out_per_head) * 0.1)
        self.a_dst = nn.Parameter(torch.randn(heads, out_per_head) * 0.1)

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        b, n, _ = x.shape
        h = self.fc(x).view(b, n, self.heads, self.out_per_head)
        scores = (h * self.a_src).sum(-1).unsqueeze(2) + (h * self.a_dst).sum(-1).unsqueeze(1)
        scores = F.leaky_relu(scores, 0.2).masked_fill(adj.unsqueeze(-1) == 0, -1e9)
        weights = torch.softmax(scores, dim=2)
        return torch.einsum("bijh,bjhd->bihd", weights, h).reshape(b, n, -1)


class GAT(nn.Module):
    """A class per node."""

    def __init__(self, nfeat: int, per_head: int, heads: int, nclass: int) -> None:
        super().__init__()
        self.layer1 = GATLayer(nfeat, per_head, heads)
        self.layer2 = GATLayer(heads * per_head, per_head, heads)
        self.out = nn.Linear(heads * per_head, nclass)

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        x = F.elu(self.layer1(x, adj))
        x = F.elu(self.layer2(x, adj))
        return self.out(x)


def gcn(width: float = 1.0) -> GCN:
    return GCN(12, int(64 * width), nclass=4)


def gat(width: float = 1.0) -> GAT:
    return GAT(12, per_head=int(16 * width), heads=4, nclass=4)
