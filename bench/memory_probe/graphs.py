#!/usr/bin/env python3
"""What one CUDA graph of a whole iteration holds: rows that cross streams in the overlapped
schedule of Megatron-Core, with and without graph_capture_record_stream_reuse, and the pool that
stays between replays. One process per allocator setting; needs one GPU."""

import argparse
import json
import os
import subprocess
import sys

REUSE = "expandable_segments:True,graph_capture_record_stream_reuse:True"
SETTINGS = {"expandable": "expandable_segments:True", "reuse": REUSE}
CASES = [  # layers, microbatches, tokens, top-k, hidden
    (4, 2, 2048, 8, 2048), (4, 4, 2048, 8, 2048), (8, 4, 1024, 4, 1536), (2, 8, 2048, 2, 4096)]


def rows_between_streams(layers, microbatches, tokens, k, hidden):
    """Dispatch and combine on one stream, experts on the other. A node frees what it was given as
    ScheduleNode does (pipeline_parallel/utils.py): record_stream, then the storage."""
    import torch
    compute, exchange = torch.cuda.current_stream(), torch.cuda.Stream()

    def node(stream, other, function, given, free):
        stream.wait_stream(other)
        with torch.cuda.stream(stream):
            made = function(given)
        given.record_stream(stream)
        if free:
            given.untyped_storage().resize_(0)
        return made

    def pass_through(x, free):
        sent = node(exchange, compute, lambda t: t.repeat(k, 1), x, False)
        expert = node(compute, exchange, lambda t: t * 2, sent, free)
        return node(exchange, compute, lambda t: t.view(k, tokens, hidden).sum(0), expert, free)

    x = torch.ones(tokens, hidden, dtype=torch.bfloat16, device="cuda")
    for _ in range(microbatches):
        for free in (True, False):  # forward frees by storage, backward by dropping gradients
            y = x
            for _ in range(layers):
                y = pass_through(y, free)
            compute.wait_stream(exchange)


def step_of_linears(model, x):
    model(x).sum().backward()
    for p in model.parameters():
        p.grad = None


def captured(function, *arguments):
    """Bytes that the pool of one captured call takes and keeps."""
    import torch
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        function(*arguments)
        function(*arguments)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        function(*arguments)
    graph.replay()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved() - before, graph


def eager_peak(function, *arguments):
    import torch
    function(*arguments)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    function(*arguments)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def run():
    import torch
    result = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(),
              "setting": os.environ["PYTORCH_CUDA_ALLOC_CONF"], "crossings": [], "pools": []}
    for case in CASES:
        layers, microbatches, tokens, k, hidden = case
        held, _ = captured(rows_between_streams, *case)
        result["crossings"].append({"case": case, "held_bytes": held,
                                    "formula_bytes": 4 * 2 * hidden * tokens * k * layers
                                    * microbatches})
    for width, depth in ((4096, 4), (8192, 6)):
        model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(width, width),
                                                          torch.nn.GELU())
                                      for _ in range(depth)]).cuda().bfloat16()
        x = torch.ones(8192, width, dtype=torch.bfloat16, device="cuda")
        peak = eager_peak(step_of_linears, model, x)
        kept, graph = captured(step_of_linears, model, x)
        result["pools"].append({"width": width, "depth": depth, "eager_peak_bytes": peak,
                                "kept_bytes": kept})
        del graph, model, x
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", default="graphs.json")
    parser.add_argument("--here", action="store_true", help="with this process's setting")
    options = parser.parse_args()
    if options.here:
        print(json.dumps(run()))
        return
    results = {}
    for name, setting in SETTINGS.items():
        done = subprocess.run([sys.executable, __file__, "--here"], capture_output=True, text=True,
                              env=os.environ | {"PYTORCH_CUDA_ALLOC_CONF": setting})
        if done.returncode != 0:
            sys.exit(done.stderr)
        results[name] = json.loads(done.stdout.splitlines()[-1])
    with open(options.to, "w") as file:
        json.dump(results, file, indent=1)
    for name, result in results.items():
        print(name, result["torch"], result["gpu"])
        for c in result["crossings"]:
            print("  rows between streams", c["case"], f"{c['held_bytes'] / 2**20:9.1f} MiB held,",
                  f"{c['formula_bytes'] / 2**20:9.1f} of 4 x 2hR per layer and microbatch")
        for p in result["pools"]:
            print("  whole step", p["width"], p["depth"], f"{p['kept_bytes'] / 2**20:9.1f} MiB kept,",
                  f"{p['eager_peak_bytes'] / 2**20:9.1f} eager peak")


if __name__ == "__main__":
    main()
