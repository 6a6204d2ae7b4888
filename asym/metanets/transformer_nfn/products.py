"""S = Σ_s Q_s K_sᵀ and T = Σ_s V_s O_s of attention, as layers ask for them, explicit or composed.

Attention of every later layer is that of the network itself times matrices that do not depend on the network: channel c
of Q is L_c Q with L_c ∈ R^{D × D}, and so for K, V; O_c = O R_cᵀ. So

    S_c = L^Q_c S L^K_cᵀ,    T_c = L^V_c T R_cᵀ,    Σ_c ⟨φ_c, S_c⟩ = ⟨Σ_c L^Q_cᵀ φ_c L^K_c, S⟩,

and what the next layer needs follows from one product for each network, while channels live in matrices that all
networks of a batch share. `Composed` works so; `Explicit` has Q, K, V, O of all channels, which gates need. Both heads
and rows of all heads are summed first: Q, K `n c D (h d_k)`, V `n c D (h d_v)`, O `n c (h d_v) D`.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

Weights = Mapping[str, Tensor]
"""Q, K, V, O, A, a, B, b of a block with channels, heads side by side."""
PAIRS = {"S": ("Q", "K"), "T": ("V", "O")}


class Explicit:
    """Attention with its channels."""

    def __init__(self, x: Weights) -> None:
        self.x = x
        self._outer: dict[str, Tensor] = {}

    def outer(self, name: str) -> Tensor:
        """S or T, `n c D D`."""
        if name not in self._outer:
            left, right = (self.x[symbol] for symbol in PAIRS[name])
            self._outer[name] = left @ (right.mT if name == "S" else right)
        return self._outer[name]

    def against(self, name: str, weight: Tensor, factor: Tensor) -> Tensor:
        """S or T times a factor against coefficients `e c D D`: `n e`."""
        return _against(self.outer(name), weight) * factor[..., None, None]

    def ends(self) -> Tensor:
        """O 1, `n c (h d_v)`."""
        return self.x["O"].sum(-1)

    def starts(self, h: Tensor) -> Tensor:
        """V h, `n c D`, for h `n c (h d_v)`."""
        return (self.x["V"] @ h[..., None])[..., 0]

    def rows(self, symbol: str, vectors: Tensor) -> Tensor:
        """Rows of Q, K, V, or columns of O, against vectors `r c D`: `n c r (h d)`."""
        x = self.x["O"].mT if symbol == "O" else self.x[symbol]
        return vectors.transpose(-3, -2).unsqueeze(-4) @ x

    def columns(self) -> Tensor:
        """O, `n c (h d_v) D`."""
        return self.x["O"]


class Composed(Explicit):
    """Attention as matrices on the attention of one channel.

    Args:
        x: one channel.
        maps: L of Q, K, V, and R of O, `c D D` each; None for the attention itself.
        base: a `Composed` of the same networks, whose products are used again.
    """

    def __init__(self, x: Weights, maps: Mapping[str, Tensor] | None = None, base: Explicit | None = None) -> None:
        super().__init__(x)
        self.maps, self.base = maps, base or Explicit(x)

    def outer(self, name: str) -> Tensor:
        """S or T, `n c D D`."""
        if self.maps is None:
            return self.base.outer(name)
        left, right = (self.maps[symbol].unsqueeze(-4) for symbol in PAIRS[name])
        return left @ self.base.outer(name) @ right.mT

    def against(self, name: str, weight: Tensor, factor: Tensor) -> Tensor:
        """S or T times a factor against coefficients `e c D D`: `n e`; composes coefficients where those are fewer than
        networks.
        """
        outputs = weight.shape[-4]
        if self.maps is None or outputs > self.x["Q"].shape[-4]:
            return super().against(name, weight, factor)
        left, right = (self.maps[symbol] for symbol in PAIRS[name])
        inner = weight.movedim(-4, -2).flatten(-3, -2) @ right  # c (p e) q
        inner = inner.unflatten(-2, (-1, outputs)).flatten(-4, -3).flatten(-2)  # (c p) (e q)
        composed = (left.flatten(-3, -2).mT @ inner).unflatten(-1, (outputs, -1)).transpose(-3, -2)  # e p q
        return _against(self.base.outer(name), composed) * factor[..., None, None]

    def ends(self) -> Tensor:
        """O 1, `n c (h d_v)`."""
        if self.maps is None:
            return self.base.ends()
        return self.maps["O"].sum(-2).unsqueeze(-3) @ self.x["O"][..., 0, :, :].mT

    def starts(self, h: Tensor) -> Tensor:
        """V h, `n c D`, for h `n c (h d_v)`."""
        if self.maps is None:
            return self.base.starts(h)
        seen = (h @ self.x["V"][..., 0, :, :].mT).transpose(-3, -2)  # c n p
        return (seen @ self.maps["V"].mT).transpose(-3, -2)

    def rows(self, symbol: str, vectors: Tensor) -> Tensor:
        """Rows of Q, K, V, or columns of O, against vectors `r c D`: `n c r (h d)`."""
        if self.maps is None:
            return self.base.rows(symbol, vectors)
        turned = vectors.transpose(-3, -2) @ self.maps[symbol]  # c r D
        x = self.x["O"].mT if symbol == "O" else self.x[symbol]
        return (turned.flatten(-3, -2).unsqueeze(-3) @ x[..., 0, :, :]).unflatten(-2, turned.shape[-3:-1])

    def columns(self) -> Tensor:
        """O, `n c (h d_v) D`."""
        return self.base.columns() if self.maps is None else self.x["O"] @ self.maps["O"].mT.unsqueeze(-4)


def _against(products: Tensor, weight: Tensor) -> Tensor:
    """`n c D D` against `e c D D` or `e D D`: `n e`; with coefficients on the left their gradient lies as they do."""
    start = products.ndim - 4
    return (weight.flatten(start + 1) @ products.flatten(-3).mT).mT
