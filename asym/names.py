"""Every name that a flag accepts, in one place that imports nothing, so that input is checked before torch loads.

A test compares these tuples with the registries that they mirror.
"""

ARCHS = (
    "mlp",
    "mlp-8",
    "mlp-16",
    "resnet8",
    "resnet20",
    "resnet32",
    "resnet56",
    "resnet110",
    "small-cnn",
    "gnn",
    "gnn-linear",
    "transformer",
    "transformer-plain",
    "transformer-causal",
    "siren",
)
"""Built-in architectures; `timm/<name>` and `package.module:factory` are accepted beside them."""

VARIANTS = ("standard", "w", "sigma", "w-zero", "w-init", "w-scale", "bias", "w-sigma", "syre")

ALIGNMENTS = ("none", "weight", "activation")

DATASETS = (
    "digits",
    "docstrings",
    "ag_news",
    "characters",
    "fashion_mnist",
    "mnist",
    "cifar10",
    "cifar100",
    "digits-graph",
    "ogbn-arxiv",
)
"""Built-in data sets: `docstrings`, `ag_news`, `characters` text as images of one row, the last two graphs;
`imagefolder:PATH` and `package.module:loader` are accepted beside them."""

TEXTS = ("pydoc",)
"""Built-in texts; `text:FOLDER` is accepted beside them."""

METANETS = (
    "stats",
    "stats-boost",
    "stats-boost-lightgbm",
    "stats-boost-xgboost",
    "hyper-boost",
    "flat",
    "dmc",
    "deepsets",
    "nfn-np",
    "nfn-hnp",
    "gmn",
    "gmn-b",
    "scale-gmn",
    "scale-gmn-b",
)
"""Networks that read weights (`asym.metanets`)."""

TRANSFORMER_METANETS = (
    "nfn",
    "nfn-low",
    "nfn-heads",
    "nfn-residual",
    "nfn-encoder",
    "nfn-embedding",
    "nfn-classifier",
    "units",
    "boost",
    "forest",
    "xgboost",
    "lightgbm",
    "lightgbm-forest",
    "flat",
    "stats",
    "stats-boost",
    "deepsets",
    "hyper-boost",
)
"""Networks that read weights of transformers (`asym.metanets.transformer_nfn`)."""

NORMS = ("group", "batch", "layer", "none")

OPTIMIZERS = ("sgd", "momentum", "rmsprop", "adam", "adamw")

PRESETS = ("smoke", "laptop", "paper")

LAUNCHERS = ("local", "ray", "slurm")
"""Who runs the tasks of a study."""

SLURM_OPTIONS = (
    "account",
    "cluster",
    "comment",
    "constraint",
    "exclude",
    "gres",
    "licenses",
    "mem_gb",
    "nodelist",
    "partition",
    "qos",
    "reservation",
    "time",
)
"""Options of jobs: those of `sbatch`, with `time` in minutes and `mem_gb` in gigabytes; `cluster` is slurm or local."""
