"""Local reparametrisation: the output of a linear layer is drawn in place of its weights.

Let the entries of W and b be independent normals with means M, m and variances S, s. For one input x the output
W x + b is a sum of independent normals, component by component, so

    W x + b ~ N(M x + m, S x² + s),       y = M x + m + √(S x² + s) ⊙ ξ,      ξ standard normal, one for each input

Different components use different rows of W and are independent; outputs of two inputs of a batch are correlated in
truth and independent here. The expected log-likelihood is a sum over inputs of terms that depend on one input's output
each, so its value and gradient keep their expectation, while the noise of the gradient averages out over the batch
(Kingma, Salimans and Welling, 2015). Not so for a convolution: positions of one image share the filter, their
correlation matters within a term, hence convolutions draw their weights.

With low-rank factors, ε is drawn once for the step and moves the mean; the diagonal part is drawn as above.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

TINY = 1e-16
"""Added under the root, whose slope at zero is infinite: an input may be all zeros."""


class LocalLinear(nn.Module):
    """y = M x + m + √(S x² + s) ⊙ noise; all tensors are handed in by `torch.func.functional_call`.

    Shapes: input (b, i), weight and variance (o, i), bias and bias_variance (o), noise (b, o).
    """

    def __init__(self) -> None:
        super().__init__()
        for name in ("weight", "variance", "bias", "bias_variance", "noise"):
            self.register_buffer(name, None, persistent=False)
        self.weight: Tensor
        self.variance: Tensor
        self.noise: Tensor
        self.bias: Tensor | None
        self.bias_variance: Tensor | None

    def forward(self, input: Tensor) -> Tensor:
        """Draw the output."""
        mean = F.linear(input, self.weight, self.bias)
        spread = F.linear(input.square(), self.variance, self.bias_variance)
        return mean + (spread + TINY).sqrt() * self.noise
