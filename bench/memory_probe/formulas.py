"""Bytes that the memory model predicts for the blocks of layers.py, one rank, BF16."""


def gqa(z):
    """Norm, attention and what unfused RoPE keeps, per layer."""
    n, na, ng, d = z.n, z.heads, z.groups, z.d
    terms = {"norm": 4 * z.h * n + 4 * n, "fused qkv": 2 * n * (na + 2 * ng) * d,
             "rope outputs": 2 * n * (na + ng) * d, "cos sin": 8 * d * z.s,
             "attention output": 2 * n * na * d, "log-sum-exp": 4 * n * na}
    if z.qk_norm:
        terms["q copy"] = 2 * n * na * d if na != ng else 0
        terms["qk rstd"] = 4 * n * (na + ng)
    return terms


def mla(z):
    n, na, dq, dv = z.n, z.heads, z.d + z.dr, z.d
    terms = {"norm": 4 * z.h * n + 4 * n, "kv lora": 2 * n * (2 * z.rk + z.dr), "kv rstd": 4 * n,
             "q, k, v": 2 * n * na * (2 * dq + dv), "attention output": 2 * n * na * dv,
             "log-sum-exp": 4 * n * na, "cos sin": 8 * z.dr * z.s}
    if z.rq:
        terms |= {"q lora": 4 * n * z.rq, "q rstd": 4 * n}
    return terms


def attention(z):
    return mla(z) if z.rk else gqa(z)


def router(z):
    n, E, k = z.n, z.E, z.k
    terms = {"top-k index": 8 * k * n, "top-k scores": 4 * k * n, "dense probs": 4 * E * n,
             "map": E * n, "argsort": 8 * E * n, "row index": 8 * k * n}
    if z.aux:
        terms["aux scores"] = 4 * E * n
    if z.sigmoid:
        terms["sigmoid scores"] = 4 * E * n
        terms["score sums"] = 4 * n * (2 if z.aux else 1)
    return terms


def experts(z):
    return {"rows": 2 * z.h * z.R, "fc1 output": 4 * z.fe * z.R, "act": 2 * z.fe * z.R,
            "probs": 4 * z.R}


def moe(z):
    terms = {"norm": 4 * z.h * z.n + 4 * z.n} | router(z) | experts(z)
    if z.shared:
        terms["shared"] = 6 * z.shared * z.n
    return terms


def dense(z):
    return {"norm": 4 * z.h * z.n + 4 * z.n, "fc1 output": 4 * z.f * z.n, "act": 2 * z.f * z.n}


def total(*parts):
    return sum(sum(p.values()) for p in parts)


def unfused_core(z):
    """Change of the attention's bytes when scores are materialised."""
    n, na, ng, d = z.n, z.heads, z.groups, z.d
    terms = {"fp32 softmax": 4 * z.b * z.s**2 * na, "bf16 probs": 2 * z.b * z.s**2 * na,
             "log-sum-exp": -4 * n * na}
    if na != ng:  # k and v are repeated: the copies replace the rotated k and v's fused output
        terms |= {"repeated k, v": 4 * n * na * d, "rotated k": -2 * n * ng * d}
        if not z.qk_norm:
            terms["fused qkv"] = -2 * n * (na + 2 * ng) * d
    return terms


def attributes(z, kind):
    """Dense probabilities and map, which the dispatcher keeps until the layer runs again."""
    return 0 if kind == "dense" else (3 if kind == "bf16-router" else 5) * z.E * z.n


def kept(z, kind, recompute=None):
    """Bytes kept from forward to backward by one layer."""
    full = total(attention(z), dense(z) if kind == "dense" else moe(z))
    if kind == "unfused":
        full += total(unfused_core(z))
    if kind == "bf16-router":
        full -= 2 * z.n * z.E + 2 * z.R  # dense and permuted probabilities
    if recompute == "full":
        return 2 * z.h * z.n + attributes(z, kind)
    if recompute == "moe":
        return total(attention(z)) + 4 * z.h * z.n + 4 * z.n + attributes(z, kind)
    dropped = {"moe_act": 2 * z.fe * z.R, "layernorm": 2 * (2 * z.h * z.n + 4 * z.n),
               "core_attn": 4 * z.n * z.heads,
               "mla_up_proj": 2 * z.n * z.heads * (2 * (z.d + z.dr) + z.d) + 8 * z.dr * z.s}
    return full - dropped.get(recompute, 0)


def dense_backward(z):
    dY = 2 * z.h * z.n
    w1, w2 = 4 * z.f * z.h, 2 * z.f * z.h  # dummy bf16 gradients
    return {"fc2": dY + 2 * z.f * z.n + w2, "act": dY + 4 * z.f * z.n,
            "fc1": dY - 2 * z.f * z.n + 2 * z.h * z.n + w1}


def moe_backward(z, kind):
    """fc1 and fc2 hold the bf16 weight gradient of all experts and its dummy."""
    dY, rows = 2 * z.h * z.n, 2 * z.h * z.R
    x1, x2 = 8 * z.E * z.fe * z.h, 4 * z.E * z.fe * z.h
    probs = (2 if kind == "bf16-router" else 4) * z.R
    return {"fc2": dY + rows + 2 * z.fe * z.R + x2, "act": dY + 4 * z.fe * z.R + probs,
            "fc1": dY - 2 * z.fe * z.R + rows + x1}


def combine(z, kind):
    """Forward, when the expert output is brought back: rows sent, [rows received,] expert output,
    its unsorted copy[, and the combined rows being added up in a new tensor]."""
    rows, probs = 2 * z.h * z.R, (2 if kind == "bf16-router" else 4) * z.R
    peak = 4 * rows + 2 * z.h * z.n if kind == "exchange" else 3 * rows
    return peak + probs + (2 * z.h * z.n if z.shared else 0)


def sequential_backward(z):
    """One expert after the other: only one expert's dummy gradient lives, no bf16 gradient.
    First comes the moment at which the gradient of the rows is put back into expert order."""
    dY, rows, one = 2 * z.h * z.n, 2 * z.h * z.R, z.R / z.E
    return dY + rows + max(rows, 2 * z.fe * one + 2 * z.fe * z.h,
                           2 * z.h * one - 2 * z.fe * one + 4 * z.fe * z.h)


def left(z, kind, recompute, count):
    """Bytes that stay allocated after a step: the dispatcher's attributes, and, because the dense
    probabilities keep the recomputed graph, every recomputed region's input and its gradient. The
    probe's first layer reads a tensor that is not counted."""
    graph = {"full": 4 * z.h * z.n * count - 2 * z.h * z.n, "moe": 4 * z.h * z.n * count}
    stays = graph.get(recompute, 0) if kind != "dense" else 0
    return attributes(z, kind) * count + stays


def moments(z, kind, recompute=None):
    """Moment -> bytes above everything stored by all layers."""
    if kind == "sequential":
        return {"backward": sequential_backward(z), "forward": combine(z, kind)}
    y, act = 2 * z.h * z.n, 2 * z.fe * z.R
    back = dense_backward(z) if kind == "dense" else moe_backward(z, kind)
    ahead = 4 * z.h * z.n if kind == "dense" else combine(z, kind)
    extra = {"moe_act": (2 * act, 2 * act, act), "layernorm": (2 * y + 4 * z.n,) * 3}
    again = kept(z, kind) - attributes(z, kind)
    if recompute == "moe":
        again += y - (kept(z, kind, "moe") - attributes(z, kind))
    if recompute in ("full", "moe"):
        extra[recompute] = (again,) * 3
    found = {m: back[m] + e for m, e in zip(("fc2", "act", "fc1"), extra.get(recompute, (0,) * 3))}
    if recompute in ("full", "moe"):
        return found | {"re-forward": again + ahead}
    if recompute == "moe_act":
        ahead = max(ahead, 4 * z.h * z.R + act + 4 * z.R)
    if recompute == "layernorm":
        ahead += y
    if kind == "unfused":
        core = z.b * z.s**2 * z.heads
        freed = 2 * z.n * z.heads * z.d if z.heads != z.groups else 0  # the repeated v
        return found | {"core": 10 * core - freed}
    return found | {"forward": ahead}
