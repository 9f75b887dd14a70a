"""What is not a layer: loss, optimizer step, CUDA context and library workspaces."""

import torch

import loss as losses
import ops
from ops import DEVICE, weight
from shapes import byte_names
from history import Trace, compact


def run_loss(z):
    report = {}
    for kind in ("compiled", "split", "plain"):
        try:
            report[kind] = one_loss(z, kind)
        except Exception as error:
            report[kind] = {"error": repr(error)[:300]}
    return report


def one_loss(z, kind):
    x = torch.randn(z.n, z.h, dtype=torch.bfloat16, device=DEVICE, requires_grad=True)
    out, target = weight(z.V, z.h), torch.randint(z.V, (z.n,), device=DEVICE)
    entropy = losses.function(kind)

    def forward():
        logits = ops.Linear.apply(x, out)
        return entropy(logits, target).mean()

    forward().backward()
    x.grad = None
    with Trace() as trace:
        trace.mark("forward")
        result = forward()
        trace.watch([result])
        trace.mark("backward")
        result.backward()
    moments, names, unit = trace.replay(), byte_names(z), z.n * z.V
    start = moments[1]["begin"]
    first = next(i for i, m in enumerate(moments) if m["name"] == "backward")
    rows = {"forward": moments[1]}
    for m in moments[first:]:
        if m["name"] not in rows and m["name"].startswith("~"):
            rows[m["name"]] = m
    return {name: {"bytes_per_token_vocab": round((m["peak"] - start) / unit, 4),
                   "live": compact(m["live"], names, keep=8)} for name, m in rows.items()}


def adam(parameters, kind):
    return torch.optim.AdamW(parameters, lr=1e-4, fused=kind == "fused", foreach=kind == "foreach")


def run_optimizer():
    """Bytes per parameter above the static ones, per step, for fp32 and bf16 gradients."""
    report, sizes = {}, [(8192, 4096)] * 12 + [(3000, 4096)] * 4 + [(4096,)] * 8
    for grads in (torch.float32, torch.bfloat16):
        for kind in ("fused", "foreach", "loop"):
            name = f"{kind}, {str(grads)[6:]} gradients"
            try:
                report[name] = one_optimizer(sizes, grads, kind)
            except Exception as error:
                report[name] = {"error": repr(error)[:300]}
    return report


def one_optimizer(sizes, grads, kind):
    torch.cuda.empty_cache()
    start = torch.cuda.memory_allocated()
    model = [torch.zeros(s, dtype=torch.bfloat16, device=DEVICE) for s in sizes]
    buffers = [torch.ones(s, dtype=grads, device=DEVICE) for s in sizes]
    master = [p.float().requires_grad_() for p in model]
    count = sum(p.numel() for p in model)
    optimizer, steps = adam(master, kind), []
    for _ in range(3):
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        for m, g in zip(master, buffers):
            m.grad = g.float()
        cast = torch.cuda.memory_allocated()
        torch.nn.utils.clip_grad_norm_(master, 1.0)
        clipped = torch.cuda.max_memory_allocated()
        optimizer.step()
        for p, m in zip(model, master):
            p.copy_(m.detach())
            m.grad = None
        steps.append({"static": (before - start) / count, "cast": (cast - before) / count,
                      "clip_peak": (clipped - start) / count,
                      "peak": (torch.cuda.max_memory_allocated() - start) / count})
    return {"parameters": count, "bytes_per_parameter": steps}


def run_context():
    """Device memory in use and the allocator's view after each first use of a library."""
    rows = []

    def note(name):
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        rows.append({"after": name, "device_used": total - free,
                     "reserved": torch.cuda.memory_reserved(),
                     "allocated": torch.cuda.memory_allocated(),
                     "outside": total - free - torch.cuda.memory_reserved()})

    torch.cuda.init()
    note("context")
    a = torch.randn(1024, 1024, dtype=torch.bfloat16, device=DEVICE, requires_grad=True)
    note("random tensor")
    b = (a @ a)
    note("matmul forward")
    b.sum().backward()
    note("matmul backward (autograd thread)")
    main = torch.zeros(1024, 1024, device=DEVICE)
    with torch.no_grad():
        ops.accumulate_fp32(main, a, a)
    note("bf16 GEMM with fp32 output")
    torch._grouped_mm(a.detach(), torch.stack([a.detach()] * 2),
                      offs=torch.tensor([512, 1024], dtype=torch.int32, device=DEVICE))
    note("grouped GEMM")
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
        q = a.detach().view(1, 8, 1024, 128).requires_grad_()
        o = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
        note("cuDNN attention forward")
        o.sum().backward()
    note("cuDNN attention backward")
    torch.sort(torch.randn(1 << 20, device=DEVICE))
    torch.topk(a.float(), 8)
    note("sort, top-k")
    del a, b, main, q, o
    note("all tensors freed")
    torch.cuda.empty_cache()
    note("cache emptied")
    return rows
