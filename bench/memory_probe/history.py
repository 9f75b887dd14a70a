"""Replays the allocator's own event history: totals per moment, and which tensors live at a peak."""

import os
from collections import defaultdict

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 2.0**20


def allocations():
    """How many blocks the allocator has handed out so far."""
    return torch.cuda.memory_stats_as_nested_dict(0)["allocation"]["all"]["allocated"]


def where(event):
    """'file:function:line' of the innermost frame of this folder, or '' (an autograd node)."""
    for frame in event.get("frames", []):
        path, name = frame["filename"], frame["name"]
        if path.startswith(HERE) and not path.endswith("history.py") and name != "call":
            return f'{os.path.basename(path)}:{name}:{frame["line"]}'
    return ""


class Trace:
    """Context manager. mark() names the moment that begins; watch() marks every autograd node."""

    def __enter__(self):
        torch.cuda.synchronize()
        torch.cuda.memory._record_memory_history("all", context="all", stacks="python",
                                                 max_entries=1000000)
        self.first, self.base = allocations(), torch.cuda.memory_stats()["requested_bytes.all.current"]
        self.marks = [(0, "start")]
        return self

    def __exit__(self, *_):
        torch.cuda.synchronize()
        snapshot = torch.cuda.memory._snapshot()
        torch.cuda.memory._record_memory_history(enabled=None)
        self.events = [e for e in snapshot["device_traces"][0]
                       if e["action"] in ("alloc", "free_requested")]

    def mark(self, name):
        self.marks.append((allocations() - self.first, name))

    def watch(self, outputs):
        todo, seen = [t.grad_fn for t in outputs if t.grad_fn is not None], set()
        while todo:
            node = todo.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if "AccumulateGrad" not in node.name():
                node.register_prehook(lambda *_, name=node.name(): self.mark("~" + name))
            todo += [f for f, _ in node.next_functions]

    def replay(self):
        """-> list of moments {name, first total, peak total, live tensors at the peak}."""
        moments, live, total, count, at = [], {}, self.base, 0, 0
        current = None
        for event in self.events:
            if event["action"] == "alloc":
                while at < len(self.marks) and self.marks[at][0] <= count:
                    current = {"name": self.marks[at][1], "begin": total, "peak": total,
                               "live": list(live.values()), "first": list(live.values())}
                    moments.append(current)
                    at += 1
                node = current["name"] if current["name"].startswith("~") else ""
                label = f"{node} {where(event)}".strip() or current["name"]
                live[event["addr"]] = (event["size"], label)
                total += event["size"]
                count += 1
                if total > current["peak"]:
                    current["peak"], current["live"] = total, list(live.values())
            else:
                live.pop(event["addr"], None)
                total -= event["size"]
        for left in self.marks[at:]:
            moments.append({"name": left[1], "begin": total, "peak": total,
                            "live": list(live.values()), "first": list(live.values())})
        self.end, self.left = total, list(live.values())
        return moments


def compact(live, names, least=1 << 18, keep=10):
    """[bytes, count, expression, allocated by], largest groups first."""
    groups = defaultdict(int)
    for size, label in live:
        groups[(size, label)] += 1
    rows = sorted(groups.items(), key=lambda kv: -kv[0][0] * kv[1])
    return [[size, n, names.get(size, ""), label]
            for (size, label), n in rows if size * n >= least][:keep]
