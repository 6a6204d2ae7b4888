"""asym: parameter symmetries of neural networks, removed, matched or respected.

A parameter symmetry is a group acting on the weights of a network. `asym.nn` builds networks that have fewer
of them, `asym.models` the architectures, `asym.symmetry` describes them and aligns networks along them,
`asym.populations` trains many networks as one object, `asym.data`, `asym.metrics` and `asym.store` carry the rest.
"""
