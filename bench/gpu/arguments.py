"""How these drivers read their command lines: what is wrong with one is one line and exit 2, before anything runs."""

import argparse
import collections.abc
import os
import pathlib
import re
import shlex
import shutil
import sys

POLICIES = ("serial", "two_stream_1f1b", "split_dw", "autograd")


class Parser(argparse.ArgumentParser):
    def __init__(self, about: str) -> None:
        super().__init__(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message: str) -> None:
        # Words may be of any length and hold anything; the answer is one line that a terminal can show.
        line = "".join(each if each.isprintable() else "?" for each in re.sub(r"\S{241,}", lambda word: word[0][:240] + "...", message))
        self.exit(2, f"{self.prog}: {line}; --help shows what it takes\n")

    def parse_args(self, words: list[str] | None = None) -> argparse.Namespace:
        # Of which argparse makes an empty list, whatever the type.
        for word in sys.argv[1:] if words is None else words:
            if word.startswith("--") and word.endswith("=--"):
                self.error(f"argument {word[:-3]}: '--' is no value")
        return super().parse_args(words)


def refused(sentence: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(sentence)


def at_least(least: int) -> collections.abc.Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or len(text) > 9 or int(text) < least:
            raise refused(f"'{text}' is no whole number from {least} up, of at most nine digits")
        return int(text)
    return read


def above_0(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1e6:
        raise refused(f"'{text}' is no number above 0, a million at most")
    return value


def list_of(each: collections.abc.Callable[[str], object]) -> collections.abc.Callable[[str], list]:
    """Of words between commas; nothing is an empty list."""
    return lambda text: [each(word) for word in text.split(",") if word]


def one_of(known: collections.abc.Iterable[str]) -> collections.abc.Callable[[str], str]:
    def read(text: str) -> str:
        if text not in known:
            raise refused(f"'{text}' is none of {', '.join(known)}")
        return text
    return read


policy = one_of(POLICIES)


def program(text: str) -> str:
    if shutil.which(text) is None:
        raise refused(f"{text} cannot be started; check its path")
    return text


def shell_words(text: str) -> str:
    try:
        shlex.split(text)
    except ValueError as problem:
        raise refused(f"{problem} in {text}") from None
    return text


def command(text: str) -> list[str]:
    words = shlex.split(shell_words(text))
    if not words:
        raise refused("name a program")
    program(words[0])
    return words


def existing(text: str) -> str:
    """A file or a folder."""
    if not os.path.exists(text):
        raise refused(f"there is no {text}; check its path")
    return text


def new_file(text: str) -> pathlib.Path:
    path, there, folder = pathlib.Path(text), os.path.exists(text), os.path.dirname(text) or "."
    if there:
        # A pipe would wait for a reader.
        fits = path.is_file() or path.is_char_device()
    else:
        fits = os.path.isdir(folder) and not os.path.lexists(text) and 0 < len(os.fsencode(path.name)) <= 255
    if not fits or not os.access(text if there else folder, os.W_OK):
        raise refused(f"'{text}' cannot be written; name a file in a folder that is there")
    return path
