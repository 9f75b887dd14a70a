#!/usr/bin/env python3
"""report.py FOLDER [FILE]: joins the parts' results (into FILE), prints measured and predicted.
report.py FILE: prints a recorded sample."""

import json
import pathlib
import statistics
import sys

import formulas
from shapes import SHAPES

MIB = 2.0**20
WIDTHS = (34, 10, 10, 9, 9, 9)
worst = []


def line(*cells):
    print(" ".join(f"{c:>{w}}" if i else f"{c:<{w}}" for i, (c, w) in enumerate(zip(cells, WIDTHS))))


def compare(name, measured, predicted):
    percent = 100 * (measured - predicted) / predicted if predicted else 0
    worst.append((abs(percent), name.strip(), measured - predicted))
    return [name, f"{measured / MIB:.2f}", f"{predicted / MIB:.2f}", f"{percent:+.2f}%",
            f"{(measured - predicted) / MIB:.2f}"]


def blocks(name, result):
    print(f"attention {result['attention']}")
    line("case", "MiB", "predicted", "residual", "diff MiB", "rounding")
    ratios = []
    for case_name, case in result["cases"].items():
        if "error" in case:
            line(case_name, case["error"])
            continue
        kind, _, recompute = case_name.partition("+")
        z = SHAPES[name].of(kind)
        rounding = (case["kept_blocks"][2] - case["kept_blocks"][0]) / 2 - case["slope"]
        line(*compare(case_name, case["slope"], formulas.kept(z, kind, recompute)),
             f"{rounding / MIB:.2f}")
        for moment, want in formulas.moments(z, kind, recompute).items():
            line(*compare(f"    {moment}", case["moments"][moment]["above_stored"], want))
        line(*compare("    left", case["peaks"]["left"], formulas.left(z, kind, recompute, 2)))
        ratios.append(case["peaks"]["reserved"] / case["peaks"]["allocated"])
    print(f"reserved / allocated at the peak: median {statistics.median(ratios):.3f}, "
          f"{min(ratios):.3f} to {max(ratios):.3f}")


def left(_, result):
    for name, row in result.items():
        print(f"{name:<26}", {k: v for k, v in row.items() if k != "tensors"})
        for tensor in row["tensors"]:
            print("      ", *tensor)


def loss(_, result):
    for name, rows in result.items():
        print(f"{name:<10}", {k: v["bytes_per_token_vocab"] if isinstance(v, dict) else v
                              for k, v in rows.items()})


def optimizer(_, result):
    for name, row in result.items():
        for step in row.get("bytes_per_parameter", [row]):
            print(f"{name:<28}", {k: round(v, 3) if isinstance(v, float) else v
                                  for k, v in step.items()})


def context(_, result):
    line("MiB after", "device", "reserved", "allocated", "outside")
    for row in result:
        line(row["after"], *(f"{row[k] / MIB:.2f}"
                             for k in ("device_used", "reserved", "allocated", "outside")))


def main():
    source, parts = pathlib.Path(sys.argv[1]), {}
    if source.is_dir():
        parts = {p["part"]: p for p in (json.loads(f.read_text()) for f in source.glob("*.json"))}
    else:
        parts = json.loads(source.read_text())
    for name, part in sorted(parts.items()):
        kind, _, shape = name.partition(":")
        print(f"\n== {name} ({part['seconds']} s)")
        {"blocks": blocks, "left": left, "loss": loss, "optimizer": optimizer,
         "context": context}[kind](shape, part["result"])
    worst.sort(reverse=True)
    print(f"\n{len(worst)} comparisons; largest residuals:")
    for percent, name, bytes_ in worst[:8]:
        print(f"  {percent:.3f}% {name} {bytes_ / MIB:+.3f} MiB")
    if len(sys.argv) > 2:
        pathlib.Path(sys.argv[2]).write_text(json.dumps(parts, separators=(",", ":")))


if __name__ == "__main__":
    main()
