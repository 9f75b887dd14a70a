"""Activation recomputation: a plain checkpoint, and one that also drops its output."""

import torch

on_graph = None  # called with the outputs of every recomputed graph (the trace marks its nodes)


def _replay(function, saved):
    inputs = [t.detach().requires_grad_(t.requires_grad) for t in saved]
    with torch.enable_grad():
        outputs = function(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    if on_graph:
        on_graph(outputs)
    return inputs, outputs


class _Checkpoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, *args):
        ctx.function = function
        with torch.no_grad():
            out = function(*args)
        ctx.save_for_backward(*args)
        return out

    @staticmethod
    def backward(ctx, *grads):
        inputs, outputs = _replay(ctx.function, ctx.saved_tensors)
        torch.autograd.backward(outputs, grads)
        return (None,) + tuple(t.grad for t in inputs)


def checkpoint(function, *args):
    return _Checkpoint.apply(function, *args)


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, holder, *args):
        with torch.no_grad():
            out = holder.function(*args)
        ctx.save_for_backward(*args)
        holder.ctx = ctx
        return out

    @staticmethod
    def backward(ctx, *grads):
        torch.autograd.backward(ctx.outputs, grads)
        ctx.outputs = None
        inputs, ctx.inputs = ctx.inputs, None
        return (None,) + tuple(t.grad for t in inputs)


class DroppedOutput:
    """The output's storage is freed after its consumer ran and refilled, by a copy from the
    recomputed tensor, when the gradient of the consumer's output arrives."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *args):
        out = _Dropped.apply(self, *args)
        self.outputs = out if isinstance(out, tuple) else (out,)
        return out

    def drop(self, consumer_output):
        for t in self.outputs:
            t.untyped_storage().resize_(0)
        consumer_output.register_hook(self.refill)

    def refill(self, _):
        self.ctx.inputs, fresh = _replay(self.function, self.ctx.saved_tensors)
        for old, new in zip(self.outputs, fresh):
            old.untyped_storage().resize_(new.untyped_storage().size())
            old.untyped_storage().copy_(new.untyped_storage())
        self.ctx.outputs, self.outputs, self.ctx = fresh, None, None
