"""Shared test set-up: shape and type annotations of the library are checked at run time, on one thread."""

from jaxtyping import install_import_hook

install_import_hook("asym", "typecheck.check")

import torch  # noqa: E402

torch.set_num_threads(1)
