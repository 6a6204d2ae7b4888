"""Linear forms in unknowns, and the linear equations between them: the algebra under the audit's predictions.

An infinitesimal symmetry changes every activation x of a network by δx = A x + c. The entries of A and c are linear
forms in unknowns z; every operation of the network adds equations between them (`audit_rules.py`), and

    predicted symmetries = {z : all equations hold}

is a null space. Equations are solved in two stages, those of the architecture first, those of constants (masks and
fixed weights) second: the first stage falls apart into small pieces, one for each place in the network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

sp: Any = scipy.sparse
"""SciPy's sparse matrices, whose type stubs do not know what their operators give."""

NULL = 1e-9
"""Singular values below this share of the largest one are zero: coefficients are of order 1, rounding 1e-15."""


@dataclass
class Form:
    """A tensor whose entries are linear forms Σ_k coef[k, …] z[idx[k]]; an unknown may occur several times.

    Attributes:
        idx: `[k]`, which unknowns.
        coef: `[k, *shape]`, float64.
    """

    idx: Tensor
    coef: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return tuple(self.coef.shape[1:])

    def __add__(self, other: Form) -> Form:
        return Form(torch.cat([self.idx, other.idx]), torch.cat([self.coef, other.coef])).merged()

    def __neg__(self) -> Form:
        return Form(self.idx, -self.coef)

    def __sub__(self, other: Form) -> Form:
        return self + (-other)

    def map(self, function: Callable[[Tensor], Tensor]) -> Form:
        """Apply a linear map to the tensor; it is called with `[k, *shape]`."""
        return Form(self.idx, function(self.coef))

    def merged(self) -> Form:
        """The same forms with every unknown once."""
        unique, place = self.idx.unique(return_inverse=True)
        if len(unique) == len(self.idx):
            return self
        coef = self.coef.new_zeros((len(unique), *self.shape))
        return Form(unique, coef.index_add_(0, place, self.coef))

    @staticmethod
    def zero(*shape: int) -> Form:
        """The zero tensor."""
        return Form(torch.zeros(0, dtype=torch.long), torch.zeros((0, *shape), dtype=torch.float64))

    @staticmethod
    def cat(forms: Sequence[Form], dim: int = 0) -> Form:
        """Tensors laid end to end along `dim`."""
        total, start = sum(f.shape[dim] for f in forms), 0
        parts = []
        for form in forms:
            coef = form.coef.new_zeros((len(form.idx), *form.shape[:dim], total, *form.shape[dim + 1 :]))
            coef.narrow(dim + 1, start, form.shape[dim]).copy_(form.coef)
            start += form.shape[dim]
            parts.append(Form(form.idx, coef))
        return Form(torch.cat([p.idx for p in parts]), torch.cat([p.coef for p in parts])).merged()


@dataclass
class System:
    """Unknowns with tags (the family of symmetries that they belong to) and the equations between them.

    Attributes:
        tags: tag of each unknown; None until an operation that uses it gives one.
        equations: per stage, sparse rows over the unknowns.
    """

    tags: list[str | None] = field(default_factory=list)
    equations: tuple[list[Any], list[Any]] = field(default_factory=lambda: ([], []))

    def new(self, coef: Tensor, tag: str | None = None) -> Form:
        """Fresh unknowns, one for each entry of the first axis of `coef` `[k, *shape]`."""
        start = len(self.tags)
        self.tags += [tag] * len(coef)
        return Form(torch.arange(start, start + len(coef)), coef.double())

    def retag(self, form: Form, tag: str, over: Sequence[str | None] = (None,)) -> None:
        """Give the unknowns in `form` whose tag is among `over` a tag."""
        for k in form.idx.tolist():
            if self.tags[k] in over:
                self.tags[k] = tag

    def require_zero(self, form: Form, stage: int = 0) -> None:
        """Every entry of `form` is zero."""
        if len(form.idx) == 0 or form.coef.numel() == 0:
            return
        form = form.merged()
        rows = form.coef.flatten(1).T if form.shape else form.coef[None]
        rows = rows[(rows != 0).any(1)]
        local = sp.coo_matrix(rows.numpy())
        if local.nnz:
            columns = form.idx.numpy()[local.col]
            self.equations[stage].append(
                sp.coo_matrix((local.data, (local.row, columns)), (local.shape[0], 0x7FFFFFFF))
            )

    def solve(self, only: Sequence[str] | None = None) -> Any:
        """A basis of the solutions, `[unknowns, solutions]`; with `only`, of those that move these tags alone."""
        n = len(self.tags)
        keep = np.array([only is None or tag in only for tag in self.tags], dtype=bool)
        basis = sp.identity(n, format="csr")[:, np.flatnonzero(keep)]
        for rows in self.equations:
            if rows and basis.shape[1]:
                joint = sp.vstack([sp.coo_matrix((r.data, (r.row, r.col)), (r.shape[0], n)) for r in rows]).tocsr()
                basis = (basis @ _null_space(joint @ basis)).tocsr()
        return sp.csr_matrix(basis)


def _null_space(rows: Any) -> Any:
    """A sparse basis of the null space, found separately in every block of unknowns that equations connect."""
    rows = sp.csr_matrix(rows)
    rows.data[np.abs(rows.data) < 1e-12] = 0
    rows.eliminate_zeros()
    n = rows.shape[1]
    zero = np.zeros(n, dtype=bool)
    while True:  # an equation with one unknown sets it to zero
        single = np.flatnonzero(np.diff(rows.indptr) == 1)
        found = np.unique(rows.indices[rows.indptr[single]]) if len(single) else np.zeros(0, int)
        if len(found) == 0:
            break
        zero[found] = True
        rows = sp.csr_matrix(rows @ sp.diags((~zero).astype(float)))
        rows.eliminate_zeros()
    rows = rows[np.diff(rows.indptr) > 0]
    free = np.flatnonzero(~zero)
    rows = sp.csr_matrix(rows[:, free])
    pattern = (abs(rows).T @ abs(rows)) if rows.shape[0] else sp.csr_matrix((len(free), len(free)))
    count, label = connected_components(pattern, directed=False)
    order = np.argsort(label, kind="stable")
    bounds = np.searchsorted(label[order], np.arange(count + 1))
    columns = rows.tocsc()
    blocks_row, blocks_col, blocks_val, made = [], [], [], 0
    for i in range(count):
        members = order[bounds[i] : bounds[i + 1]]
        part = columns[:, members].tocsr()
        part = part[np.diff(part.indptr) > 0].toarray()
        vectors = np.ones((1, 1)) if len(part) == 0 else _dense_null(part)
        blocks_row.append(np.repeat(free[members], vectors.shape[1]))
        blocks_col.append(np.tile(np.arange(made, made + vectors.shape[1]), len(members)))
        blocks_val.append(vectors.ravel())
        made += vectors.shape[1]
    if not count:
        return sp.csr_matrix((n, 0))
    data = (np.concatenate(blocks_val), (np.concatenate(blocks_row), np.concatenate(blocks_col)))
    return sp.csr_matrix(sp.coo_matrix(data, (n, made)))


def _dense_null(rows: np.ndarray) -> np.ndarray:
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    if len(rows) > 2 * rows.shape[1]:
        rows = np.asarray(np.linalg.qr(rows, mode="r"))
    _, values, vectors = np.linalg.svd(rows, full_matrices=True)
    rank = int((values > NULL * max(values[0], 1e-300)).sum())
    null = vectors[rank:].T
    if null.shape[1] == 1:  # entries of ±1 where a unit's scale is carried along
        null = null / np.abs(null).max()
    return null
