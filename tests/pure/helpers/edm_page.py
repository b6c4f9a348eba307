"""The tables of the data mover's channels as Markdown: ``python -m edm_page``. See ``docs/edm.md``."""

from enum import Enum

from sipsim.chips.tensix.edm.channel import RECEIVER, SENDER, Command, Fact, State, Table


def tables() -> str:
    """Both state machines, and what the names mean."""
    parts = [("Sender channel", _table(SENDER)), ("Receiver channel", _table(RECEIVER))]
    parts += [("States", _names(State)), ("Facts", _names(Fact)), ("Commands", _names(Command))]
    return "\n\n".join(f"### {title}\n\n{text}" for title, text in parts)


def _table(table: Table) -> str:
    lines = ["| state | fact | commands, in this order | next state |", "|---|---|---|---|"]
    for state, row in table.items():
        for fact, made in row.items():
            commands = ", ".join(f"`{command.name}`" for command in made.commands) or "none"
            lines.append(f"| `{state.name}` | `{fact.name}` | {commands} | `{made.state.name}` |")
    return "\n".join(lines)


def _names(names: type[Enum]) -> str:
    return "\n".join(["| name | meaning |", "|---|---|", *(f"| `{each.name}` | {each.value} |" for each in names)])


if __name__ == "__main__":
    print(tables())
