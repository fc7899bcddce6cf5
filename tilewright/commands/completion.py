"""Completion scripts for bash, zsh and fish, made from the options of the commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["script"]

_FILES = frozenset(["FILE", "FIRST", "SECOND", "A.npy", "PATH", "OUT"])  # what stands for a path in the help texts


@dataclass(frozen=True)
class _Option:
    names: tuple[str, ...]
    about: str
    takes_value: bool
    value: str
    takes_file: bool


@dataclass(frozen=True)
class _Command:
    name: str
    about: str
    options: tuple[_Option, ...]
    words: tuple[str, ...]  # of the first argument, where it is one of some words
    takes_files: bool


def _commands(parser: argparse.ArgumentParser) -> list[_Command]:
    (sub,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return [_command(name, p) for name, p in sub.choices.items()]


def _command(name: str, parser: argparse.ArgumentParser) -> _Command:
    options, words, takes_files = [], [], False
    for action in parser._actions:
        if action.option_strings:
            value = str(action.metavar or "") if action.nargs != 0 else ""
            about = (action.help or "").replace("%%", "%")
            options.append(_Option(tuple(action.option_strings), about, action.nargs != 0, value or "value", value in _FILES))
        else:
            words += [str(c) for c in action.choices or ()]
            takes_files = takes_files or action.metavar in _FILES
    return _Command(name, (parser.description or "").rstrip("."), tuple(options), tuple(words), takes_files)


def _bash(commands: list[_Command]) -> str:
    lines = [
        "_tilewright() {",
        '  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" words="" files="" word',
        '  if [ "$COMP_CWORD" -eq 1 ]; then',
        f'    words="{" ".join(c.name for c in commands)} --help --version"',
        "  else",
        '    case "${COMP_WORDS[1]}" in',
    ]
    for c in commands:
        names = [n for o in c.options for n in o.names if n.startswith("--")]
        lines.append(f'      {c.name}) words="{" ".join([*c.words, *names])}"{" files=yes" if c.takes_files else ""}')
        paths = [n for o in c.options if o.takes_file for n in o.names]
        others = [n for o in c.options if o.takes_value and not o.takes_file for n in o.names]
        cases = [f'{"|".join(names)}) words="" files={files} ;;' for names, files in ((paths, "yes"), (others, '""')) if names]
        lines.append(f'        case "$previous" in {" ".join(cases)} esac ;;' if cases else "        ;;")
    lines += [
        "    esac",
        "  fi",
        "  COMPREPLY=()",
        '  while IFS= read -r word; do COMPREPLY+=("$word"); done < <(',
        '    compgen -W "$words" -- "$current"',
        '    if [ -n "$files" ]; then compgen -f -- "$current"; fi',
        "  )",
        "}",
        "complete -o filenames -F _tilewright tilewright",
    ]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _described(text: str) -> str:
    """A description between brackets, or before the colon that ends it."""
    return text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


def _zsh(commands: list[_Command]) -> str:
    lines = [
        "#compdef tilewright",
        "_tilewright() {",
        "  local -a commands",
        "  commands=(",
        *(f"    {_quoted(f'{c.name}:{_described(c.about)}')}" for c in commands),
        "  )",
        "  if (( CURRENT == 2 )); then",
        "    _describe command commands",
        "    return",
        "  fi",
        "  shift words",
        "  (( CURRENT-- ))",
        "  case $words[1] in",
    ]
    for c in commands:
        given = []
        for o in c.options:
            for name in o.names:
                # An option that is given again counts again (`--input`); the others do no harm.
                value = f":{o.value}:{'_files' if o.takes_file else ''}" if o.takes_value else ""
                given.append(_quoted(f"*{name}") + _quoted(f"[{_described(o.about)}]{value}"))
        if c.words:
            given.append(_quoted(f"1:what:({' '.join(c.words)})"))
        if c.takes_files:
            given.append(_quoted("*:file:_files"))
        lines += [f"    {c.name})", "      _arguments \\", *(f"        {g} \\" for g in given[:-1]), f"        {given[-1]} ;;"]
    lines += [
        "  esac",
        "}",
        "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }",
        "compdef _tilewright tilewright",
    ]
    return "\n".join(lines)


def _fish(commands: list[_Command]) -> str:
    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    start = "complete -c tilewright"
    lines = [f"{start} -n __fish_use_subcommand -f"]
    for c in commands:
        inside = f"{start} -n '__fish_seen_subcommand_from {c.name}'"
        lines.append(f"{start} -n __fish_use_subcommand -a {c.name} -d {quoted(c.about)}")
        if not c.takes_files:
            lines.append(f"{inside} -f")
        if c.words:
            lines.append(f"{inside} -a {quoted(' '.join(c.words))}")
        for o in c.options:
            names = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in o.names)
            value = (" -r -F" if o.takes_file else " -x") if o.takes_value else ""
            lines.append(f"{inside} {names}{value} -d {quoted(o.about)}")
    return "\n".join(lines)


_WRITERS: dict[str, Callable[[list[_Command]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """What the shell is to read (`source`): the commands, their options, and which arguments are files."""
    return _WRITERS[shell](_commands(parser))
