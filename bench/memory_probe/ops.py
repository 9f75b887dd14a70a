"""Autograd functions with the saved tensors and temporaries of Megatron-Core's PyTorch-only stack:
weight gradients accumulate into an fp32 `main_grad`, autograd gets a dummy bf16 gradient."""

import torch
import torch.nn.functional as F

COMPILE = True
DEVICE = "cuda"


def drop_gradient(p):
    p.grad = None  # as the hook of the data-parallel wrapper does


def weight(*shape):
    w = torch.nn.Parameter(torch.empty(shape, dtype=torch.bfloat16, device=DEVICE).normal_(0, 0.02))
    w.main_grad = torch.zeros(shape, dtype=torch.float32, device=DEVICE)
    w.register_post_accumulate_grad_hook(drop_gradient)
    return w


def fused(function, **options):
    """torch.compile on first use, as Megatron's jit_fuser does; eager where it is off."""
    compiled = None

    def call(*args):
        nonlocal compiled
        if not COMPILE:
            return function(*args)
        compiled = compiled or torch.compile(function, **options)
        return compiled(*args)

    return call


def dummy_gradient(weight):
    return torch.empty(weight.shape, dtype=weight.dtype, device=weight.device)


def accumulate_fp32(main_grad, grad, x):
    """main_grad += grad^T x in one GEMM with an fp32 output."""
    torch.ops.aten.addmm.dtype_out(main_grad, grad.t(), x, torch.float32, beta=1, alpha=1,
                                   out=main_grad)


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return torch.matmul(x, weight.t())

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        dx = grad.matmul(weight)
        accumulate_fp32(weight.main_grad, grad.reshape(-1, grad.shape[-1]),
                        x.reshape(-1, x.shape[-1]))
        return dx, dummy_gradient(weight)


class GroupedLinear(torch.autograd.Function):
    """All local experts in one grouped GEMM; weights are [experts, out, in]."""

    @staticmethod
    def forward(ctx, x, weight, offsets):
        ctx.save_for_backward(x, weight, offsets)
        return torch._grouped_mm(x, weight.transpose(1, 2), offs=offsets)

    @staticmethod
    def backward(ctx, grad):
        x, weight, offsets = ctx.saved_tensors
        dx = torch._grouped_mm(grad, weight, offs=offsets)
        dw = torch._grouped_mm(grad.t(), x, offs=offsets)
        weight.main_grad.add_(dw)
        return dx, dummy_gradient(weight), None


def _swiglu(y):
    gate, up = torch.chunk(y, 2, -1)
    return F.silu(gate) * up


def _swiglu_grad(g, y):
    gate, up = torch.chunk(y, 2, -1)
    sig = torch.sigmoid(gate)
    return torch.cat((g * sig * (1 + gate * (1 - sig)) * up, g * F.silu(gate)), -1)


def _weighted(y, probs):
    return (_swiglu(y) * probs).to(y.dtype)


def _weighted_grad(g, y, probs):
    dy = _swiglu_grad(g * probs, y).to(y.dtype)
    return dy, (_swiglu(y) * g.to(probs.dtype)).sum(-1, keepdim=True).to(probs.dtype)


swiglu, swiglu_grad = fused(_swiglu, dynamic=True), fused(_swiglu_grad, dynamic=True)
weighted, weighted_grad = fused(_weighted, dynamic=True), fused(_weighted_grad, dynamic=True)


class SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        ctx.save_for_backward(y)
        return swiglu(y)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return swiglu_grad(g, y)


class WeightedSwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, probs):
        ctx.save_for_backward(y, probs)
        return weighted(y, probs)

    @staticmethod
    def backward(ctx, g):
        y, probs = ctx.saved_tensors
        return weighted_grad(g, y, probs)


class Exchange(torch.autograd.Function):
    """Stands for an all-to-all between balanced ranks: a new buffer of the same size."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g.clone()


class AuxLoss(torch.autograd.Function):
    """Attaches the auxiliary loss to the graph without using its value."""

    @staticmethod
    def forward(ctx, out, loss):
        ctx.save_for_backward(loss)
        return out

    @staticmethod
    def backward(ctx, g):
        (loss,) = ctx.saved_tensors
        return g, torch.ones_like(loss)
