# torch._grouped_mm: forward, dgrad, wgrad (BF16 result) of experts; samples as moecast calibrate writes them.
import json, random, statistics, sys, time
import torch

def rows_of(E, mean, kind, rng):
    if kind == "balanced": return [mean] * E
    if kind == "skewed":
        w = [(i * 7 % E + 1) ** -0.5 for i in range(E)]
        s = E * mean / sum(w); r = [max(16, int(s * x / 16 + .5) * 16) for x in w]
        r[r.index(max(r))] += E * mean - sum(r); return r
    counts = [0] * E                    # routed: uniform, without replacement over top-8-ish
    for _ in range(E * mean): counts[rng.randrange(E)] += 1
    return counts

def timed(launch, copies):
    for i in range(3): launch(i % copies)
    torch.cuda.synchronize()
    a, b = torch.cuda.Event(True), torch.cuda.Event(True)
    a.record(); [launch(i % copies) for i in range(3)]; b.record(); torch.cuda.synchronize()
    one = max(a.elapsed_time(b) / 3 * 1e-3, 2e-6)
    L = max(1, min(200, int(2e-3 / one)))
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        for i in range(L): launch(i % copies)
    t0 = time.time()
    while time.time() - t0 < 0.06:
        for _ in range(5): g.replay()
        torch.cuda.synchronize()
    n = 12
    ev = [torch.cuda.Event(True) for _ in range(n + 1)]
    ev[0].record()
    for i in range(n): g.replay(); ev[i + 1].record()
    torch.cuda.synchronize()
    us = sorted(ev[i].elapsed_time(ev[i + 1]) * 1e3 / L for i in range(n))
    del g
    return us

def main(out_path, budget_s, seed):
    rng = random.Random(seed)
    shapes = []
    weights = [(4096, 7168), (7168, 2048), (1536, 2048), (2048, 768), (2816, 2048), (4096, 1536), (28672, 4096), (4096, 14336)]
    for n, k in weights:
        for E in (8, 32, 64, 128):
            for m in (32, 64, 128, 192, 256, 512, 1024, 4096):
                if E * m > 65536 or E * n * k > 2.2e9: continue
                if E in (64, 128) and m not in (64, 256, 512): continue
                if n in (28672, 4096) and k != 7168 and m not in (128, 1024): continue
                shapes.append((E, m, n, k, "balanced"))
                if m in (128, 256, 512) and E in (32, 128, 64): shapes.append((E, m, n, k, "routed"))
                if m == 512 and E == 32: shapes.append((E, m, n, k, "skewed"))
    rng.shuffle(shapes)
    for _ in range(30):
        E = round(2 * 64 ** rng.random()); m = max(16, round(16 * 256 ** rng.random() / 16) * 16)
        n = round(512 * 16 ** rng.random() / 128) * 128; k = round(512 * 16 ** rng.random() / 128) * 128
        if E * m <= 65536 and E * n * k < 1.5e9: shapes.insert(0, (E, m, n, k, "random"))
    start, lines = time.time(), []
    for E, m, n, k, kind in shapes:
        if time.time() - start > budget_s: break
        rows = rows_of(E, m, "balanced" if kind == "random" else kind, rng)
        T = sum(rows)
        offs = torch.tensor(rows, device="cuda").cumsum(0).to(torch.int32)
        per = 2 * (E * n * k + T * (n + k))
        copies = max(1, min(16, int(130e6 / per) + 1))
        X = [torch.randn(T, k, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
        Y = [torch.randn(T, n, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
        W = [torch.randn(E, k, n, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
        calls = {
            "forward": lambda i: torch._grouped_mm(X[i], W[i], offs=offs),
            "dgrad": lambda i: torch._grouped_mm(Y[i], W[i].transpose(-1, -2), offs=offs),
            "wgrad": lambda i: torch._grouped_mm(X[i].t(), Y[i], offs=offs),
        }
        for p, f in calls.items():
            try:
                got = f(0); lo, hi = (0, rows[0])
                want = {"forward": lambda: X[0][lo:hi].float() @ W[0][0].float(),
                        "dgrad": lambda: Y[0][lo:hi].float() @ W[0][0].float().t(),
                        "wgrad": lambda: X[0][lo:hi].float().t() @ Y[0][lo:hi].float()}[p]()
                g0 = (got[0] if p == "wgrad" else got[lo:hi]).float()
                err = float((g0 - want).norm() / want.norm()) if rows[0] else 0
                assert err < 5e-3, err
                us = timed(f, copies)
            except Exception as e:
                print("failed", E, m, n, k, p, str(e)[:200]); continue
            keys = {"accumulate": 0.0, "experts": float(E), "k": float(k), "n": float(n), "pass": p, "precision": "bf16",
                    "skew": round(max(rows) / m, 4), "tokens": float(T)}
            if kind in ("routed", "random"): keys["kind"] = kind
            lines.append({"class": "grouped_gemm", "keys": keys, "backend": "torch_grouped_mm", "n": len(us),
                          "median_us": float("%.4g" % statistics.median(us)), "min_us": float("%.4g" % us[0]), "max_us": float("%.4g" % us[-1]),
                          "spread_pct": round(100 * (us[-2] - us[1]) / statistics.median(us), 2), "max_rel_error": float("%.2g" % err)})
        del X, Y, W, calls
        torch.cuda.empty_cache()
    json.dump(lines, open(out_path, "w"))
    print(len(lines), "grouped_mm samples of", 3 * len(shapes), "torch", torch.__version__, "in %.0f s" % (time.time() - start))

main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
