"""How these drivers read their command lines: what is wrong with one is one line and exit 2, before anything runs."""

import argparse
import collections.abc
import pathlib
import shlex
import shutil

POLICIES = ("serial", "two_stream_1f1b", "split_dw", "autograd")


class Parser(argparse.ArgumentParser):
    def __init__(self, about: str) -> None:
        super().__init__(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message: str) -> None:
        self.exit(2, f"{self.prog}: {message}; --help shows what it takes\n")


def refused(sentence: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(sentence)


def at_least(least: int) -> collections.abc.Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise refused(f"'{text}' is no whole number from {least} up")
        return int(text)
    return read


def above_0(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise refused(f"'{text}' is no number above 0")
    return value


def list_of(each: collections.abc.Callable[[str], object]) -> collections.abc.Callable[[str], list]:
    """Of words between commas; nothing is an empty list."""
    return lambda text: [each(word) for word in text.split(",") if word]


def policy(text: str) -> str:
    if text not in POLICIES:
        raise refused(f"'{text}' is none of {', '.join(POLICIES)}")
    return text


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
    if not pathlib.Path(text).exists():
        raise refused(f"there is no {text}; check its path")
    return text


def new_file(text: str) -> pathlib.Path:
    path = pathlib.Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise refused(f"{text} cannot be written; name a file in a folder that is there")
    return path
