"""A small made-up text for the tests of the SAFFU study."""

from asym.seeds import numpy_generator

WORDS = [f"w{i}" for i in range(24)]


def write_text(folder):
    """Six shards of a language in which the next word mostly follows from the last one."""
    draw = numpy_generator(0, "text")
    for shard in range(6):
        at, words = shard, []
        for _ in range(400):
            at = (3 * at + 1) % 24 if draw.random() < 0.7 else int(draw.integers(24) ** 2 // 24)
            words.append(WORDS[at])
        (folder / f"s{shard}.txt").write_text(" ".join(words))
    return folder
