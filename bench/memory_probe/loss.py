"""Cross entropy over bf16 logits in fp32, as Megatron-Core's native implementation computes it:
eager ("plain"), compiled whole ("compiled"), and with only its pointwise steps compiled ("split")."""

import torch

import ops


def upcast(logits):
    logits = logits.float()
    return logits, logits.max(-1)[0]


def pick(logits, target, top):
    rows = torch.arange(logits.shape[0], device=logits.device)
    return (logits[rows, target] - top).clone()


def shift_exp(logits, top):
    logits -= top.unsqueeze(-1)
    torch.exp(logits, out=logits)


def predicted(logits, target, top):
    logits -= top.unsqueeze(-1)
    rows = torch.arange(logits.shape[0], device=logits.device)
    chosen = logits[rows, target].clone()
    exp = logits
    torch.exp(logits, out=exp)
    return torch.cat((chosen, exp.sum(-1))), exp


def finish(exp, both):
    chosen, total = torch.split(both, both.shape[0] // 2)
    exp.div_(total.unsqueeze(-1))
    return exp, torch.log(total) - chosen


def gradient(softmax, g, target):
    rows = torch.arange(softmax.shape[0], device=softmax.device)
    softmax[rows, target] -= 1.0
    softmax.mul_(g.unsqueeze(-1))
    return softmax.to(torch.bfloat16)


def scale(softmax, g):
    softmax.mul_(g.unsqueeze(-1))


def function(kind):
    jit = ops.fused if kind != "plain" else (lambda f: f)
    up, last = jit(upcast), jit(finish)
    if kind == "split":
        take, exp_, mul_ = jit(pick), jit(shift_exp), jit(scale)

        def middle(logits, target, top):
            chosen = take(logits, target, top)
            exp_(logits, top)
            return torch.cat((chosen, logits.sum(-1))), logits

        def grad(softmax, g, target):
            rows = torch.arange(softmax.shape[0], device=softmax.device)
            softmax[rows, target] -= 1.0
            mul_(softmax, g)
            return softmax.to(torch.bfloat16)
    else:
        middle, grad = jit(predicted), jit(gradient)
    if kind == "plain":
        def grad(softmax, g, target):  # autograd casts to the dtype of the logits
            gradient_fp32 = softmax
            gradient_fp32[torch.arange(softmax.shape[0], device=softmax.device), target] -= 1.0
            return gradient_fp32.mul_(g.unsqueeze(-1))

    class CrossEntropy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits, target):
            logits, top = up(logits)
            both, exp = middle(logits, target, top)
            exp, loss = last(exp, both)
            ctx.save_for_backward(exp, target)
            return loss

        @staticmethod
        def backward(ctx, g):
            softmax, target = ctx.saved_tensors
            return grad(softmax, g, target), None

    return CrossEntropy.apply
