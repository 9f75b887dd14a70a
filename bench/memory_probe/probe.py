#!/usr/bin/env python3
"""Runs one part of the probe in this process, or every part in processes side by side."""

import argparse
import json
import os
import subprocess
import sys
import time


def parts():
    return ["context", "blocks:wide", "blocks:fat", "blocks:odd", "blocks:mla", "blocks:mha",
            "blocks:lite", "blocks:ragged", "left:odd", "loss:wide",
            "loss:fat", "loss:odd", "optimizer"]


def run_part(part):
    import blocks
    import others
    from shapes import SHAPES
    kind, _, shape = part.partition(":")
    if kind == "context":
        return others.run_context()
    if kind == "optimizer":
        return others.run_optimizer()
    run = {"blocks": blocks.run, "left": blocks.run_left, "loss": others.run_loss}[kind]
    return run(SHAPES[shape])


def one(part, folder):
    start = time.time()
    import torch
    result = {"part": part, "result": run_part(part), "seconds": round(time.time() - start, 1),
              "torch": torch.__version__}
    with open(os.path.join(folder, part.replace(":", "-") + ".json"), "w") as file:
        json.dump(result, file)


def start(part, folder):
    log = open(os.path.join(folder, part.replace(":", "-") + ".log"), "w")
    return subprocess.Popen([sys.executable, __file__, "--part", part, "--to", folder],
                            stdout=log, stderr=subprocess.STDOUT,
                            env=os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "1"})


def all_parts(wanted, folder, limit):
    end = time.time() + limit
    if "context" in wanted:  # device-wide figures: nothing else may run
        start("context", folder).wait(timeout=60)
    running = [start(p, folder) for p in wanted if p != "context"]
    for process in running:
        try:
            process.wait(timeout=max(1, end - time.time()))
        except subprocess.TimeoutExpired:
            process.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", help="run only this part, in this process")
    parser.add_argument("--parts", nargs="*", default=parts())
    parser.add_argument("--to", default=".", help="folder for the results")
    parser.add_argument("--limit", type=float, default=100, help="seconds for all parts")
    options = parser.parse_args()
    os.makedirs(options.to, exist_ok=True)
    if options.part:
        one(options.part, options.to)
    else:
        all_parts(options.parts, options.to, options.limit)


if __name__ == "__main__":
    main()
