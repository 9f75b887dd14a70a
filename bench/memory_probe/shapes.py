"""The sizes that the probe runs, and the names of the byte counts that occur in them."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Shape:
    name: str
    s: int  # sequence length
    b: int  # microbatch size
    h: int  # hidden size
    heads: int
    groups: int  # key/value heads
    d: int  # head size (the part without rotation for MLA)
    E: int  # experts
    k: int  # experts per token
    fe: int  # expert feed-forward size
    f: int  # dense feed-forward size
    V: int  # padded vocabulary
    qk_norm: bool = True
    shared: int = 0  # shared expert feed-forward size
    sigmoid: bool = False  # sigmoid scores with an expert bias instead of softmax
    aux: bool = True  # auxiliary load balancing loss
    rq: int = 0  # MLA ranks; rk > 0 selects MLA
    rk: int = 0
    dr: int = 0

    @property
    def n(self):
        return self.s * self.b

    @property
    def R(self):
        return self.n * self.k

    def but(self, **changes):
        return replace(self, **changes)

    def of(self, kind):
        """The shape of a case of this kind."""
        return self.but(aux=False) if kind == "no-aux" else self


WIDE = Shape("wide", 4096, 1, 2048, 32, 4, 128, 128, 8, 768, 6144, 151936)
FAT = Shape("fat", 2048, 2, 4096, 32, 8, 128, 8, 2, 14336, 14336, 32000, qk_norm=False)
ODD = Shape("odd", 3072, 1, 1536, 24, 6, 64, 40, 6, 512, 5120, 50304)
MLA = Shape("mla", 4096, 1, 2048, 16, 16, 128, 64, 6, 1408, 10944, 102400, qk_norm=False,
            shared=2816, sigmoid=True, rq=1536, rk=512, dr=64)
MHA = Shape("mha", 2048, 1, 2048, 16, 16, 128, 16, 4, 1024, 8192, 32768)
LITE = MLA.but(name="lite", s=2048, b=2, rq=0, shared=0, sigmoid=False)
RAGGED = Shape("ragged", 1500, 3, 1344, 21, 7, 64, 20, 3, 584, 3016, 32128)
TINY = Shape("tiny", 32, 2, 64, 4, 2, 16, 8, 2, 48, 96, 512)
TINY_MLA = MLA.but(name="tiny-mla", s=32, b=2, h=64, heads=4, groups=4, d=16, E=8, k=2, fe=48,
                   f=96, V=512, shared=40, rq=24, rk=20, dr=8)
SHAPES = {s.name: s for s in (WIDE, FAT, ODD, MLA, MHA, LITE, RAGGED, TINY, TINY_MLA)}


def byte_names(z: Shape):
    """Byte count -> expression; the first expression of a count wins."""
    dq = z.d + z.dr
    table = [
        ("2hR", 2 * z.h * z.R), ("4feR", 4 * z.fe * z.R), ("2feR", 2 * z.fe * z.R),
        ("2hn", 2 * z.h * z.n), ("4R", 4 * z.R), ("8R", 8 * z.R),
        ("8nE", 8 * z.n * z.E), ("4nE", 4 * z.n * z.E), ("nE", z.n * z.E),
        ("8nk", 8 * z.n * z.k), ("4nk", 4 * z.n * z.k),
        ("w(fc1 experts)", 4 * z.E * z.h * z.fe), ("w(fc2 experts)", 2 * z.E * z.h * z.fe),
        ("2n(na+2ng)d", 2 * z.n * (z.heads + 2 * z.groups) * z.d),
        ("2n na d", 2 * z.n * z.heads * z.d), ("2n ng d", 2 * z.n * z.groups * z.d),
        ("2n na (dq+dr)", 2 * z.n * z.heads * dq), ("4n na", 4 * z.n * z.heads),
        ("4n ng", 4 * z.n * z.groups), ("2sd", 2 * z.s * z.d), ("2s dr", 2 * z.s * z.dr),
        ("4fN", 4 * z.f * z.n), ("2fN", 2 * z.f * z.n), ("w(fc1)", 4 * z.f * z.h),
        ("w(fc2)", 2 * z.f * z.h), ("4sh N", 4 * z.shared * z.n), ("2sh N", 2 * z.shared * z.n),
        ("4NV", 4 * z.n * z.V), ("2NV", 2 * z.n * z.V), ("2hV", 2 * z.h * z.V),
        ("2n(rk+dr)", 2 * z.n * (z.rk + z.dr)), ("2n rk", 2 * z.n * z.rk),
        ("2n rq", 2 * z.n * z.rq), ("4bs2na", 4 * z.b * z.s**2 * z.heads),
        ("2bs2na", 2 * z.b * z.s**2 * z.heads), ("4n", 4 * z.n),
    ]
    names = {}
    for name, size in table:
        if size:
            names.setdefault(size, name)
    return names
