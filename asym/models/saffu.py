"""Self-attentive feed-forward units (SAFFU), and a language model of them.

A layer sees K slots with vectors x_k ≥ 0 of unit sum, one of them the pivot x_h (here the most recent token):

    c = x_h Xᵀ    comparisons [K]        a = softmax(c W)    attention, W [K, K]: row = compared, column = weighted slot
    z = a X       aggregate [D]          h = softmax(z U)    output, U [D, H]

Empty slots have comparison 0 and no attention. Position is in the slots alone. The language model runs a layer on each
of its contexts (`asym.data.contexts`), the document's as a plain mean, and puts their outputs side by side:

    ŷ = softmax([h_block; h_radius; h_document] O),        O [ΣH, V].

Readings of the papers (arXiv 2311.07510, the first author's lecture of 2024) that are switches: `reading="features"`
takes the logits x_h W Xᵀ with W [D, D]; `log_attention` weighs slots by −log softmax(c W) ≥ 0, an early version whose
aggregates have no constant norm. Stacking is not defined there: here a further layer reads the outputs of the layer
below at the last S places, and O the last layer alone. The document context is a bag of at most L tokens.

With frozen embeddings comparisons are looked up in E Eᵀ [V, V], which is made when it is first needed and again
whenever E has changed. Function-preserving changes: row shifts of W, U, O; opposite shifts of all rows of O of two
contexts; permutations of the units of a context (columns of U, rows of O). No rescaling, no sign.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from asym.data.contexts import Reach

READINGS = ("slots", "features")
CACHE_CELLS = 1 << 28
"""Comparisons of larger vocabularies (16,384) are computed anew: the table would take over 1 GB."""


class SaffuLayer(nn.Module):
    """One layer on vectors.

    Args:
        slots: K.
        dim: D.
        hidden: H.
        reading: which comparison logits, see the module.
        log_attention: weigh slots by −log softmax.
        uniform: no attention, a plain mean over the slots (then there is no W).
    """

    weight: Tensor | None

    def __init__(
        self,
        slots: int,
        dim: int,
        hidden: int,
        *,
        reading: str = "slots",
        log_attention: bool = False,
        uniform: bool = False,
    ) -> None:
        super().__init__()
        if reading not in READINGS:
            raise ValueError(f"reading: unknown {reading!r}; valid: {', '.join(READINGS)}")
        self.slots, self.reading, self.log_attention = slots, reading, log_attention
        size = slots if reading == "slots" else dim
        self.weight = None if uniform else nn.Parameter(torch.zeros(size, size))
        self.hidden = nn.Parameter(torch.zeros(dim, hidden))

    def extra_repr(self) -> str:
        """Sizes and readings."""
        dim, hidden = self.hidden.shape
        kind = "uniform" if self.weight is None else self.reading + (", −log" if self.log_attention else "")
        return f"slots={self.slots}, dim={dim}, hidden={hidden}, {kind}"

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator) -> None:
        """Xavier's uniform start, drawn from a generator."""
        for parameter in self.parameters():
            nn.init.xavier_uniform_(parameter, generator=generator)

    def weigh(self, logits: Float[Tensor, "m k"], present: Bool[Tensor, "m k"] | None) -> Float[Tensor, "m k"]:
        """Attention from logits; zero at empty slots, also where all are empty."""
        if present is None:
            shares = logits.log_softmax(-1)
            return -shares if self.log_attention else shares.exp()
        shares = logits.masked_fill(~present, torch.finfo(logits.dtype).min).log_softmax(-1)
        return (-shares if self.log_attention else shares.exp()) * present

    def attend(
        self,
        comparisons: Float[Tensor, "m k"] | None,
        present: Bool[Tensor, "m k"],
        logits: Float[Tensor, "m k"] | None = None,
    ) -> Float[Tensor, "m k"]:
        """Attention from comparisons (reading "slots") or from finished logits ("features")."""
        if self.weight is None:
            return present.to(self.hidden.dtype) / present.sum(1, keepdim=True).clamp(min=1)
        if logits is None:
            assert comparisons is not None
            logits = comparisons @ self.weight
        return self.weigh(logits, present)

    def forward(
        self, x: Float[Tensor, "m k d"], pivot: Float[Tensor, "m d"] | None = None, present: Tensor | None = None
    ) -> Float[Tensor, "m h"]:
        """Vectors of the slots → h. The pivot is slot 0 unless it is given; all slots are there unless told."""
        pivot = x[:, 0] if pivot is None else pivot
        if self.weight is None:
            a = x.new_ones(x.shape[:2]) if present is None else present.to(x.dtype)
            a = a / a.sum(1, keepdim=True).clamp(min=1)
        elif self.reading == "slots":
            comparisons = (x @ pivot[:, :, None])[..., 0]
            a = self.weigh((comparisons if present is None else comparisons * present) @ self.weight, present)
        else:
            a = self.weigh((x @ (pivot @ self.weight)[:, :, None])[..., 0], present)
        return (((a[:, None, :] @ x)[:, 0]) @ self.hidden).softmax(-1)


class SaffuLM(nn.Module):
    """Contexts of token numbers `[m, *stack, columns]` → logits `[m, V]`.

    Args:
        embedding: E, vectors of the tokens with unit sum.
        hidden: H of every layer.
        reach: sizes of the contexts.
        reading: see the module.
        log_attention: see the module.
        train_embedding: whether E is trained.
    """

    reads = "contexts"
    output_mask: Tensor | None
    output_fixed: Tensor | None

    def __init__(
        self,
        embedding: Float[Tensor, "v d"],
        hidden: int,
        reach: Reach,
        *,
        reading: str = "slots",
        log_attention: bool = False,
        train_embedding: bool = False,
    ) -> None:
        super().__init__()
        self.reach, self.width = reach, hidden
        vocabulary, dim = embedding.shape
        self.embedding = nn.Parameter(embedding.detach().clone(), requires_grad=train_embedding)
        options = {"reading": reading, "log_attention": log_attention}
        self.layers = nn.ModuleDict(
            {name: SaffuLayer(slots, dim, hidden, uniform=name == "document", **options)  # type: ignore[arg-type]
             for name, slots in reach.slots.items()}
        )  # fmt: skip
        below, upper = hidden * len(self.layers), []
        for slots in reversed(reach.stack):
            upper.append(SaffuLayer(slots, below, hidden, **options))  # type: ignore[arg-type]
            below = hidden
        self.upper = nn.ModuleList(upper)
        self.output = nn.Parameter(torch.zeros(below, vocabulary))
        self.register_buffer("output_mask", None)
        self.register_buffer("output_fixed", None)
        self._table: tuple[tuple[int, int, str], Tensor] | None = None

    @property
    def vocabulary(self) -> int:
        """V."""
        return len(self.embedding)

    @property
    def parts(self) -> int:
        """C: how many soft-max outputs O reads, which is the norm of its input."""
        return 1 if self.upper else len(self.layers)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator) -> None:
        """Xavier's uniform start of everything but E, drawn from a generator."""
        for layer in [*self.layers.values(), *self.upper]:
            layer.reset_parameters(generator)  # type: ignore[operator]
        nn.init.xavier_uniform_(self.output, generator=generator)

    def fix_output(self, fixed: Float[Tensor, "h v"], mask: Bool[Tensor, "h v"]) -> None:
        """Make O W-asymmetric: entries where `mask` is false are the constants `fixed` and are not trained."""
        self.output_mask, self.output_fixed = mask, fixed

    @property
    def effective_output(self) -> Float[Tensor, "h v"]:
        """O with its constants."""
        if self.output_mask is None or self.output_fixed is None:
            return self.output
        return torch.where(self.output_mask, self.output, self.output_fixed)

    def comparisons_table(self) -> Float[Tensor, "v v"] | None:
        """E Eᵀ while E is frozen and the vocabulary small enough; else None."""
        e = self.embedding
        if e.requires_grad or self.vocabulary**2 > CACHE_CELLS:
            return None
        key = (e.data_ptr(), e._version, f"{e.dtype} {e.device}")
        if self._table is None or self._table[0] != key:
            self._table = (key, e.detach() @ e.detach().T)
        return self._table[1]

    def split(self, x: Int[Tensor, "m columns"]) -> tuple[Int[Tensor, " m"], dict[str, Int[Tensor, "m k"]]]:
        """Pivots, and the slots of each context."""
        sizes = self.reach.slots
        pieces = x.split([1, *sizes.values()], dim=-1)
        return pieces[0][:, 0], dict(zip(sizes, pieces[1:]))

    def compare(self, pivot: Int[Tensor, " m"], ids: Int[Tensor, "m k"]) -> Float[Tensor, "m k"]:
        """c: comparisons of the pivot with every slot, 0 where there is nothing."""
        safe, first = ids.clamp(min=0), pivot.clamp(min=0)
        table = self.comparisons_table()
        if table is not None:
            found = table.view(-1)[first[:, None] * self.vocabulary + safe]
        else:
            found = (self.embedding[safe] @ self.embedding[first][:, :, None])[..., 0]
        return found * (ids >= 0)

    def attention(self, name: str, pivot: Int[Tensor, " m"], ids: Int[Tensor, "m k"]) -> Float[Tensor, "m k"]:
        """a of one context."""
        layer: SaffuLayer = self.layers[name]  # type: ignore[assignment]
        present = ids >= 0
        if layer.weight is None:
            return layer.attend(None, present)
        if layer.reading == "features":
            query = self.embedding[pivot.clamp(min=0)] @ layer.weight
            logits = (self.embedding[ids.clamp(min=0)] @ query[:, :, None])[..., 0]
            return layer.attend(None, present, logits)
        return layer.attend(self.compare(pivot, ids), present)

    def aggregate(self, ids: Int[Tensor, "m k"], a: Float[Tensor, "m k"]) -> Float[Tensor, "m d"]:
        """z = Σ a_k x_k."""
        return functional.embedding_bag(ids.clamp(min=0), self.embedding, per_sample_weights=a, mode="sum")

    def read(self, x: Int[Tensor, "m ..."], above: int | None = None) -> Float[Tensor, "m h"]:
        """h: what O reads; of the stack's lower layers with `above` = number of layers above the first."""
        above = len(self.upper) if above is None else above
        if above == 0:
            pivot, pieces = self.split(x)
            found = []
            for name, ids in pieces.items():
                layer: SaffuLayer = self.layers[name]  # type: ignore[assignment]
                z = self.aggregate(ids, self.attention(name, pivot, ids))
                found.append((z @ layer.hidden).softmax(-1))
            return torch.cat(found, -1)
        vectors, present = self.lower(x, above)
        return self.upper[above - 1](vectors, None, present)

    def lower(self, x: Int[Tensor, "m s ..."], above: int) -> tuple[Float[Tensor, "m s d"], Bool[Tensor, "m s"]]:
        """Vectors of unit sum that layer `above` reads, and which places are there."""
        below = self.read(x.flatten(0, 1), above - 1).view(*x.shape[:2], -1)
        if above == 1:
            below = below / len(self.layers)
        return below, x.flatten(2)[..., 0] >= 0

    def forward(self, x: Int[Tensor, "m ..."]) -> Float[Tensor, "m v"]:
        """Logits of the next token."""
        return self.read(x) @ self.effective_output

    @torch.no_grad()
    def fix_gauge(self) -> None:
        """Remove the mean of every row of W, U, O: what a soft-max ignores. The function stays."""
        for name, parameter in self.named_parameters():
            if name != "embedding":
                parameter -= parameter.mean(1, keepdim=True)

    def flops(self, *, cached: bool = True) -> int:
        """Floating-point operations (2 for each multiply-add) of one prediction, of a single layer on each context.

        Comparisons 2 K D (none if cached), c W 2 K², aggregate 2 K D, z U 2 D H, output 2 Σ H V.
        """
        vocabulary, dim = self.embedding.shape
        total = 2 * self.output.shape[0] * vocabulary
        for name, slots in self.reach.slots.items():
            total += 2 * slots * dim + 2 * dim * self.width
            if name != "document":
                total += 2 * slots * slots + (0 if cached else 2 * slots * dim)
        return total
