"""Transformer layers that keep the tensors that Megatron-Core's local specification keeps."""

import math

import torch
import torch.nn.functional as F

import ops
from moe import MLP, MoE
from ops import weight
from recompute import DroppedOutput, checkpoint


def norm(x, w):
    return F.rms_norm(x, (x.shape[-1],), w, 1e-6)


def rope(t, freqs):
    """Unfused rotation of the first freqs.shape[-1] channels."""
    width = freqs.shape[-1]
    t, rest = t[..., :width], t[..., width:]
    cos, sin = torch.cos(freqs).to(t.dtype), torch.sin(freqs).to(t.dtype)
    a, b = torch.chunk(t, 2, -1)
    t = t * cos + torch.cat((-b, a), -1) * sin
    return torch.cat((t, rest), -1)


class FusedCore:
    """Fused attention on [s, b, heads, d] tensors through PyTorch's SDPA."""

    backend = None

    def __call__(self, q, k, v):
        grouped = q.shape[2] != k.shape[2]
        q, k, v = (t.permute(1, 2, 0, 3) for t in (q, k, v))
        with torch.nn.attention.sdpa_kernel(self.backend):
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
        o = o.permute(2, 0, 1, 3)
        return o.reshape(o.shape[0], o.shape[1], -1)


class UnfusedCore:
    """Scores in a persistent buffer, fp32 softmax, bf16 probabilities."""

    buffer = mask = None

    def __call__(self, q, k, v):
        s, b, heads, d = q.shape
        if k.shape[2] != heads:
            k = k.repeat_interleave(heads // k.shape[2], dim=2)
            v = v.repeat_interleave(heads // v.shape[2], dim=2)
        q, k, v = (t.reshape(s, b * heads, -1) for t in (q, k, v))
        if UnfusedCore.buffer is None:
            UnfusedCore.buffer = torch.empty(b * heads, s, s, dtype=q.dtype, device=q.device)
            UnfusedCore.mask = torch.ones(s, s, dtype=torch.bool, device=q.device).triu(1)
        scores = torch.baddbmm(self.buffer, q.transpose(0, 1), k.permute(1, 2, 0), beta=0.0,
                               alpha=1 / math.sqrt(d))
        probs = self.softmax(scores.view(b, heads, s, s)).view(b * heads, s, s)
        out = torch.bmm(probs, v.transpose(0, 1))
        out = out.view(b, heads, s, -1).permute(2, 0, 1, 3).contiguous()
        return out.view(s, b, -1)

    def softmax(self, scores):
        scores = scores.float()
        scores.masked_fill_(self.mask, -10000.0)
        return torch.softmax(scores, -1).to(torch.bfloat16)


class GQA:
    def __init__(self, z):
        self.z = z
        self.qkv = weight((z.heads + 2 * z.groups) * z.d, z.h)
        self.out = weight(z.h, z.heads * z.d)
        self.q_norm, self.k_norm = (weight(z.d), weight(z.d)) if z.qk_norm else (None, None)

    def project(self, x, freqs):
        z = self.z
        per = z.heads // z.groups
        mixed = ops.Linear.apply(x, self.qkv).view(z.s, z.b, z.groups, (per + 2) * z.d)
        q, k, v = torch.split(mixed, [per * z.d, z.d, z.d], -1)
        q = q.reshape(z.s, z.b, z.heads, z.d)
        if self.q_norm is not None:
            q, k = norm(q, self.q_norm), norm(k, self.k_norm)
        return rope(q, freqs), rope(k, freqs), v

    def __call__(self, x, freqs, core, recompute):
        q, k, v = self.project(x, freqs)
        out = checkpoint(core, q, k, v) if recompute == "core_attn" else core(q, k, v)
        return ops.Linear.apply(out, self.out)


class MLA:
    def __init__(self, z):
        self.z = z
        self.q_down, self.q_norm = (weight(z.rq, z.h), weight(z.rq)) if z.rq else (None, None)
        self.q_up = weight(z.heads * (z.d + z.dr), z.rq or z.h)
        self.kv_down, self.kv_norm = weight(z.rk + z.dr, z.h), weight(z.rk)
        self.kv_up = weight(z.heads * 2 * z.d, z.rk)
        self.out = weight(z.h, z.heads * z.d)

    def up(self, q, kv, k_pos, freqs):
        z = self.z
        q = ops.Linear.apply(q, self.q_up).view(z.s, z.b, z.heads, z.d + z.dr)
        kv = ops.Linear.apply(kv, self.kv_up).view(z.s, z.b, z.heads, 2 * z.d)
        q, q_pos = torch.split(q, [z.d, z.dr], -1)
        k, v = torch.split(kv, [z.d, z.d], -1)
        q_pos, k_pos = rope(q_pos, freqs), rope(k_pos.unsqueeze(2), freqs)
        q = torch.cat((q, q_pos), -1)
        k = torch.cat((k, k_pos.expand(-1, -1, z.heads, -1)), -1)
        return q, k, v.contiguous()

    def __call__(self, x, freqs, core, recompute):
        q = x
        if self.q_down is not None:
            q = norm(ops.Linear.apply(x, self.q_down), self.q_norm)
        kv, k_pos = torch.split(ops.Linear.apply(x, self.kv_down), [self.z.rk, self.z.dr], -1)
        kv = norm(kv, self.kv_norm)
        up = (lambda q, kv, k_pos: self.up(q, kv, k_pos, freqs))
        if recompute == "mla_up_proj":
            up = DroppedOutput(up)
        q, k, v = up(q, kv, k_pos)
        out = core(q, k, v)
        if recompute == "mla_up_proj":
            up.drop(out)
        return ops.Linear.apply(out, self.out)


class Layer:
    def __init__(self, z, kind="moe", core=None):
        self.attn_norm, self.mlp_norm = weight(z.h), weight(z.h)
        self.attention = MLA(z) if z.rk else GQA(z)
        self.mlp = MLP(z, z.f) if kind == "dense" else MoE(z, kind == "sequential")
        self.core = core or FusedCore()

    def __call__(self, x, freqs, recompute=None):
        body = (lambda x: self.forward(x, freqs, recompute))
        return checkpoint(body, x) if recompute == "full" else body(x)

    def block(self, x, w, inner, recompute):
        pre = (lambda x: norm(x, w))
        if recompute == "layernorm":
            pre = DroppedOutput(pre)
        out = inner(pre(x))
        if recompute == "layernorm":
            pre.drop(out)
        return x + out

    def forward(self, x, freqs, recompute):
        x = self.block(x, self.attn_norm,
                       lambda y: self.attention(y, freqs, self.core, recompute), recompute)
        return self.block(x, self.mlp_norm, lambda y: self.mlp(y, recompute), recompute)


class Head:
    """Final norm, output layer and a plain loss over a vocabulary too small to be the peak."""

    def __init__(self, z, vocabulary=512):
        self.norm, self.out = weight(z.h), weight(vocabulary, z.h)

    def __call__(self, x):
        return ops.Linear.apply(norm(x, self.norm), self.out).float().logsumexp(-1).mean()
