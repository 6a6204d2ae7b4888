"""A data set of a file of one's own: a hundred digits, for studies whose networks are large."""

from asym.data import load as load_data


def load(seed=0):
    return load_data("digits", train_size=100)
