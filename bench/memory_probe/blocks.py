"""Layers: bytes kept per layer, peaks of forward and backward, and what lives at them."""

import gc

import torch

import layers as net
import moe
import ops
import recompute as again
from history import Trace, compact
from shapes import byte_names

MOE = [("moe", None), ("moe", "layernorm"), ("moe", "moe"), ("moe", "full")]
MLA = [("moe", "mla_up_proj"), ("no-aux", None)]
GQA = [("moe", "moe_act"), ("moe", "core_attn"), ("exchange", None), ("exchange", "full"),
       ("no-aux", None), ("bf16-router", None), ("flash", None), ("dense", None),
       ("dense", "full"), ("unfused", None), ("sequential", None)]  # kind, what is recomputed


DETAILED = ("wide", "mla")  # the shapes whose live tensors are written out


def without_tensors(case):
    rows = {name: {k: v for k, v in m.items() if k != "live"}
            for name, m in case["moments"].items() if isinstance(m, dict)}
    return case | {"moments": rows}


def requested():
    return torch.cuda.memory_stats()["requested_bytes.all.current"]


def choose_backend(z):
    """The first fused attention that runs forward and backward on this shape."""
    from torch.nn.attention import SDPBackend as B
    dq = z.d + z.dr
    for backend in (B.CUDNN_ATTENTION, B.FLASH_ATTENTION, B.EFFICIENT_ATTENTION, B.MATH):
        net.FusedCore.backend = backend
        try:
            q, k = (torch.randn(z.s, z.b, heads, dq, dtype=torch.bfloat16, device=ops.DEVICE,
                                requires_grad=True) for heads in (z.heads, z.groups))
            v = torch.randn(z.s, z.b, z.groups, z.d, dtype=torch.bfloat16, device=ops.DEVICE)
            net.FusedCore()(q, k, v.requires_grad_()).sum().backward()
            return backend.name
        except RuntimeError as error:
            print("attention", backend, "refused:", str(error)[:150], flush=True)
    raise RuntimeError("no attention backend")


def clear(stack):
    for layer in stack:
        if hasattr(layer.mlp, "router"):
            layer.mlp.probs = layer.mlp.map = layer.mlp.counts = None


class Case:
    def __init__(self, z, kind, recompute, stack, freqs):
        self.z, self.kind, self.recompute, self.stack = z, kind, recompute, stack
        self.freqs, self.head = freqs, net.Head(z)
        self.x = torch.randn(z.s, z.b, z.h, dtype=torch.bfloat16, device=ops.DEVICE,
                             requires_grad=True)

    def forward(self, count):
        x = self.x
        for layer in self.stack[:count]:
            x = layer(x, self.freqs, self.recompute)
        return x

    def kept(self):
        """Bytes added by the forward of 1, 2 and 3 layers: requested, and with block rounding."""
        exact, blocks = [], []
        for count in (1, 2, 3):
            clear(self.stack)
            start = requested(), torch.cuda.memory_allocated()
            out = self.forward(count)
            exact.append(requested() - start[0])
            blocks.append(torch.cuda.memory_allocated() - start[1])
            del out
        return exact, blocks

    def step(self, trace, count):
        trace.mark("forward")
        out = self.forward(count)
        trace.mark("head")
        loss = self.head(out)
        del out
        trace.watch([loss])
        trace.mark("backward")
        loss.backward()
        del loss
        trace.mark("end")

    def traced(self, count=2):
        clear(self.stack)
        self.x.grad = None
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        start = torch.cuda.memory_allocated()
        with Trace() as trace:
            again.on_graph = trace.watch
            self.step(trace, count)
            again.on_graph = None
        peaks = {"allocated": torch.cuda.max_memory_allocated(),
                 "reserved": torch.cuda.max_memory_reserved(), "start": start}
        self.x.grad = None
        return trace, peaks | {"left": torch.cuda.memory_allocated() - start}


def moments_of(trace, z, kind):
    """Peaks of the named moments in bytes above everything that the layers store."""
    moments = trace.replay()
    at = {m["name"]: i for i, m in reversed(list(enumerate(moments)))}
    stored = moments[at["head"]]["begin"] - 2 * z.h * z.n
    names = byte_names(z)

    def row(m):
        return {"above_stored": m["peak"] - stored, "live": compact(m["live"], names)}

    back = moments[at["backward"]:]
    top = max(back, key=lambda m: m["peak"])
    found = {"forward": row(moments[at["forward"]]), "backward": row(top) | {"in": top["name"]},
             "kept": compact(moments[at["head"]]["first"], names, keep=26),
             "left": compact(trace.left, names)}
    if kind == "sequential":
        return found
    linear = [m for m in back if m["name"] == ("~GroupedLinearBackward" if kind != "dense"
                                                else "~LinearBackward")]
    linear = linear[1:] if kind == "dense" else linear  # the head's output layer
    act = next(m for m in back if "SwiGLUBackward" in m["name"])
    found |= {"fc2": row(linear[0]), "act": row(act), "fc1": row(linear[1])}
    if "~_CheckpointBackward" in at:
        found["re-forward"] = row(moments[at["~_CheckpointBackward"]])
    if kind == "unfused":
        core = moments[at["~BmmBackward0"]:][:12]
        most = max(core, key=lambda m: m["peak"])
        found["core"] = {"above_stored": most["peak"] - core[0]["begin"],
                         "live": compact(most["live"], names)}
    return found


def prepare(z, kind, stack):
    """Sets the layers up for the case; returns the shape that describes it."""
    shape = z.of(kind)
    for layer in stack:
        layer.mlp.exchange = kind == "exchange"
        if kind == "flash":
            layer.core.backend = torch.nn.attention.SDPBackend.FLASH_ATTENTION
        else:
            vars(layer.core).pop("backend", None)
        if kind != "dense":
            layer.mlp.router.z = shape
            layer.mlp.router.dtype = torch.bfloat16 if kind == "bf16-router" else torch.float32
    return shape


def run_case(z, kind, recompute, stack, freqs):
    shape = prepare(z, kind, stack)
    case = Case(shape, kind, recompute, stack, freqs)
    case.head(case.forward(1)).backward()  # warm-up: workspaces, compilation
    exact, blocks = case.kept()
    trace, peaks = case.traced()
    return {"kept": exact, "kept_blocks": blocks, "slope": (exact[2] - exact[0]) / 2,
            "moments": moments_of(trace, shape, kind), "peaks": peaks}


def run(z):
    report = {"attention": choose_backend(z), "cases": {}}
    freqs = torch.randn(z.s, 1, 1, z.dr or z.d, device=ops.DEVICE)
    stacks = {}
    for kind, recompute in MOE + (MLA if z.rk else GQA):
        name = kind if not recompute else f"{kind}+{recompute}"
        try:
            group = kind if kind in ("dense", "unfused", "sequential") else "moe"
            if group not in stacks:
                stacks.clear()
                gc.collect()
                torch.cuda.empty_cache()
                core = net.UnfusedCore() if kind == "unfused" else None
                stacks[group] = [net.Layer(z, kind, core) for _ in range(3)]
            case = run_case(z, kind, recompute, stacks[group], freqs)
            report["cases"][name] = case if z.name in DETAILED else without_tensors(case)
        except Exception as error:  # one case that fails leaves the others
            import traceback
            report["cases"][name] = {"error": repr(error)[:300]}
            traceback.print_exc()
    return report


def run_left(z, count=6):
    """What recomputation leaves allocated after the step, and the peak layer by layer."""
    choose_backend(z)
    freqs = torch.randn(z.s, 1, 1, z.d, device=ops.DEVICE)
    stack, report = [net.Layer(z) for _ in range(count)], {}
    for recompute, keep in (("full", True), ("full", False), ("moe", True), (None, True)):
        moe.MoE.keep_graph = keep
        case = Case(z, "moe", recompute, stack, freqs)
        case.head(case.forward(1)).backward()
        trace, peaks = case.traced(count)
        names, moments = byte_names(z), trace.replay()
        head = next(i for i, m in enumerate(moments) if m["name"] == "head")
        stored, layers = moments[head]["begin"] - 2 * z.h * z.n, []
        for m in moments[head:]:
            if m["name"] == "~_CheckpointBackward":
                layers.append(0)
            if layers:
                layers[-1] = max(layers[-1], m["peak"] - stored)
        out = case.forward(count)
        report[f"{recompute}, graph kept {keep}"] = {
            "left": peaks["left"], "in units of 2hn": (peaks["left"] - 5 * z.E * z.n * count)
            / (2 * z.h * z.n), "tensors": compact(trace.left, names),
            "layer peaks above stored": layers,
            "left after the next forward": torch.cuda.memory_allocated() - peaks["start"]
            - (stored - trace.base) - 2 * z.h * z.n}
        del out, case
        clear(stack)
    return report
