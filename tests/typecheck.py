"""The run-time type checker of the tests; an integer may stand where a float is asked for, as in static typing."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
