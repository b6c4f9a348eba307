"""The state machine of a channel of the data mover: its table, and every interleaving of both ends of a link."""

from pathlib import Path

import pytest
from edm_model import Model
from edm_page import tables

from sipsim.chips.tensix.edm.channel import RECEIVER, SENDER, Fact, State, Table, step
from sipsim.core.errors import KernelMisuse


@pytest.mark.parametrize("table", [SENDER, RECEIVER], ids=["sender", "receiver"])
def test_every_pair_is_in_the_table_or_refused_by_name(table: Table) -> None:
    for state in table:
        for fact in Fact:
            if fact in table[state]:
                assert step(table, state, fact, "channel 3").state in table
                continue
            with pytest.raises(KernelMisuse, match=f"channel 3 is in state {state.name} .* and {fact.name} ") as caught:
                step(table, state, fact, "channel 3")
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("table", [SENDER, RECEIVER], ids=["sender", "receiver"])
def test_every_state_is_reached_and_only_the_last_one_is_final(table: Table) -> None:
    reached, left = {State.STARTING}, [State.STARTING]
    while left:
        for made in table[left.pop()].values():
            if made.state not in reached:
                reached.add(made.state)
                left.append(made.state)
    assert reached == set(table)
    assert [state for state in table if not table[state]] == [State.ENDED]


MESSAGES = [(1,), (2,), (4,), (1, 1), (2, 2), (3, 2)]


@pytest.mark.parametrize("is_merged", [True, False], ids=["merged", "apart"])
@pytest.mark.parametrize("messages", MESSAGES, ids=str)
def test_every_interleaving_delivers_each_message_once(messages: tuple[int, ...], is_merged: bool) -> None:
    assert Model(messages, is_merged=is_merged).check() > 10 * sum(messages)


def test_the_documents_have_the_tables() -> None:
    """Else: put what ``python -m edm_page`` prints at the end of ``docs/edm.md``."""
    page = Path(__file__).resolve().parents[3] / "docs" / "edm.md"
    assert page.read_text().endswith(tables() + "\n")
