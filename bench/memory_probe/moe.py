"""Dense MLP, router and mixture of experts with an unfused permutation, as in layers.py."""

import torch

import ops
from ops import DEVICE, weight
from recompute import DroppedOutput, checkpoint


class MLP:
    def __init__(self, z, width):
        self.fc1, self.fc2 = weight(2 * width, z.h), weight(z.h, width)

    def __call__(self, x, recompute=None):
        return ops.Linear.apply(ops.SwiGLU.apply(ops.Linear.apply(x, self.fc1)), self.fc2)


class Router:
    def __init__(self, z):
        self.z, self.weight = z, weight(z.E, z.h)
        self.dtype = torch.float32
        self.bias = torch.zeros(z.E, device=DEVICE) if z.sigmoid else None

    def __call__(self, x):
        z = self.z
        logits = ops.Linear.apply(x, self.weight).view(-1, z.E).to(self.dtype)
        probs, index = self.choose(logits)
        dense = torch.zeros_like(logits).scatter(1, index, probs.to(self.dtype))
        routing = torch.zeros_like(logits).int().scatter(1, index, 1).bool()
        return self.with_aux_loss(logits, dense, routing), routing

    def choose(self, logits):
        z = self.z
        if z.sigmoid:
            scores = torch.sigmoid(logits)
            index = torch.topk(scores + self.bias, z.k, 1)[1]
            chosen = torch.gather(scores, 1, index)
            return chosen / (chosen.sum(-1, keepdim=True) + 1e-20), index
        chosen, index = torch.topk(logits, z.k, 1)
        return torch.softmax(chosen, -1, dtype=torch.float32), index

    def with_aux_loss(self, logits, dense, routing):
        z = self.z
        if not (z.aux and torch.is_grad_enabled()):
            return dense
        if z.sigmoid:
            scores = torch.sigmoid(logits)
            scores = scores / (scores.sum(-1, keepdim=True) + 1e-20)
        else:
            scores = torch.softmax(logits, -1, dtype=torch.float32)
        loss = (scores.sum(0) * routing.sum(0)).sum() * (z.E * 1e-3 / (z.k * z.n * z.n))
        return ops.AuxLoss.apply(dense, loss)


class MoE:
    keep_graph = True  # the dispatcher's attributes keep the routing probabilities' graph

    def __init__(self, z, sequential=False):
        self.z, self.router = z, Router(z)
        if sequential:
            self.each = [(weight(2 * z.fe, z.h), weight(z.h, z.fe)) for _ in range(z.E)]
            self.experts = self.one_by_one
        else:
            self.fc1, self.fc2 = weight(z.E, 2 * z.fe, z.h), weight(z.E, z.h, z.fe)
        self.shared = MLP(z, z.shared) if z.shared else None
        self.exchange = False  # stand for expert parallelism: new buffers where ranks exchange

    def __call__(self, x, recompute=None):
        body = (lambda x: self.forward(x, recompute))
        return checkpoint(body, x) if recompute == "moe" else body(x)

    def forward(self, x, recompute):
        shared = self.shared(x) if self.shared else None
        rows, probs, token = self.permute(x)
        arrived = ops.Exchange.apply(rows) if self.exchange else rows
        out = self.expert_part(arrived, probs, recompute)
        out = self.combine(out, token, x.shape)
        return out + shared if self.shared else out

    def permute(self, x):
        z = self.z
        probs, self.map = self.router(x)
        self.probs = probs if self.keep_graph else probs.detach()
        by_expert = self.map.t().contiguous()
        self.counts = by_expert.sum(1)
        order = by_expert.reshape(-1).argsort(descending=True, stable=True)[: z.R]
        token = order % z.n
        probs = probs.t().contiguous().reshape(-1)[order]
        return x.view(-1, z.h).index_select(0, token), probs, token

    def sort_chunks(self, x):
        return torch.cat(torch.split(x, self.counts.tolist()), 0)

    def expert_part(self, rows, probs, recompute):
        rows, probs = self.sort_chunks(rows), self.sort_chunks(probs)
        out = self.experts(rows, probs.unsqueeze(-1), recompute)
        return self.sort_chunks(out)

    def experts(self, rows, probs, recompute):
        offsets = self.counts.cumsum(0).to(torch.int32)
        y = ops.GroupedLinear.apply(rows, self.fc1, offsets)
        act = ops.WeightedSwiGLU.apply
        if recompute == "moe_act":
            act = DroppedOutput(act)
        a = act(y, probs)
        out = ops.GroupedLinear.apply(a, self.fc2, offsets)
        if recompute == "moe_act":
            act.drop(out)
        return out

    def one_by_one(self, rows, probs, _):
        counts = self.counts.tolist()
        out = []
        for x, p, (fc1, fc2) in zip(torch.split(rows, counts), torch.split(probs, counts), self.each):
            y = ops.WeightedSwiGLU.apply(ops.Linear.apply(x, fc1), p)
            out.append(ops.Linear.apply(y, fc2))
        return torch.cat(out)

    def combine(self, rows, token, shape):
        if self.exchange:
            rows = ops.Exchange.apply(rows)
        out = torch.zeros(self.z.n, self.z.h, dtype=rows.dtype, device=rows.device)
        out.scatter_add_(0, token.unsqueeze(1).expand(-1, self.z.h), rows)
        return out.view(shape)
