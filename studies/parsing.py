"""From command-line arguments to a config, with the parser's help and errors in plain words."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
from collections.abc import Sequence
from typing import TypeVar

from studies.checks import InputError

C = TypeVar("C")


def parse(config_class: type[C], args: Sequence[str], *, prog: str, description: str) -> C:
    """Read command-line arguments into a config.

    Sequences are given as `--variants standard w` or `--variants standard,w`.

    Raises:
        InputError: for unknown flags, values of the wrong type and values that the config rejects.
        SystemExit: with code 0 after `--help`.
    """
    import tyro

    captured, shown = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stderr(captured), contextlib.redirect_stdout(shown):
            return tyro.cli(
                config_class,
                prog=prog,
                description=description,
                args=_split_commas(config_class, args),
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as stop:
        if not stop.code:
            print(_plain_help(shown.getvalue()), end="")
            raise
        raise InputError(_flatten_box(captured.getvalue())) from None
    except ValueError as error:
        raise InputError(str(error)) from None


def as_flag(message: str, config_class: type) -> str:
    """A message of the library, which begins with an argument's name, with the flag of that name in its place."""
    name, colon, rest = message.partition(": ")
    known = {field.name for field in dataclasses.fields(config_class)}
    return f"--{name.replace('_', '-')}{colon}{rest}" if colon and name in known else message


def _split_commas(config_class: type, args: Sequence[str]) -> list[str]:
    """Turn `--flag=a,b` and `--flag a,b` into `--flag a b` for the fields that take several values."""
    fields = dataclasses.fields(config_class)
    several = {f"--{f.name.replace('_', '-')}" for f in fields if str(f.type).startswith("tuple")}
    out: list[str] = []
    inside = False
    for arg in args:
        if arg.startswith("--"):
            flag, equals, value = arg.partition("=")
            inside = flag.replace("_", "-") in several
            out += [flag, *value.split(",")] if inside and equals else [arg]
        else:
            out += [part for part in arg.split(",") if part] if inside else [arg]
    return out


def _plain_help(text: str) -> str:
    """The help without the parser's `{None}|`: a flag that may be left out is shown like any other."""

    text = re.sub(r"\{None\}\|\{(\[.*\])\}", r"\1" + " " * 9, text)
    text = re.sub(r"\{None\}\|(\S+)", r"\1" + " " * 7, text)
    text = re.sub(r"\{None,(\S+)", r"{\1" + " " * 5, text)
    return re.sub(r" +$", "", text, flags=re.MULTILINE)


def _flatten_box(text: str) -> str:
    """The message inside the box that the flag parser prints, on one line."""
    lines = [re.sub(r"[╭╮╰╯│]|^[+|]|[+|]$", "", line).strip() for line in text.splitlines()]
    body: list[str] = []
    for line in lines[1:]:
        rule = re.fullmatch(r"[─-]+", line)
        if (rule and body) or line.startswith("Argument helptext"):
            break
        body += [] if rule else [line]
    message = re.sub(r"\s+", " ", " ".join(body)).strip().replace("{None}|", "")
    message = message.split(" Got errors:")[0]
    message = re.sub(r"^Error parsing \w+: (?=--)", "", message)
    message = re.sub(
        r"^Error parsing (--[\w-]+): no type matching (.+) could be .* from \[(.*)\]\.?$",
        r"\1: got \3, must be \2",
        message,
    )
    similar = re.findall(r"^(--[\w-]+) ", "\n".join(lines), flags=re.MULTILINE)
    if message.startswith("Unrecognized") and similar:
        message += f" (did you mean {similar[0]}?)"
    return message or re.sub(r"\s+", " ", text).strip()
