"""The state machine of a channel of the data mover: its table, and every interleaving of both ends of a link.

Each rule has a mutant: a table or a model with the rule broken, in which the search must find a violation.
"""

from pathlib import Path

import pytest
from edm_model import Model, Violation
from edm_page import tables

from sipsim.chips.tensix.edm.channel import RECEIVER, SENDER, Command, Fact, State, Step, Table, step
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


def changed(table: Table, state: State, fact: Fact, made: Step) -> Table:
    return {**table, state: {**table[state], fact: made}}


CLEAR, TELL, SEND = Command.CLEAR_SEMAPHORE, Command.NOTIFY_WORKER, Command.SEND
ACK_1, ACK_2 = Command.SEND_ACK_1, Command.SEND_ACK_2
EARLY_SOURCE = changed(SENDER, State.EMPTY, Fact.WRITTEN, Step(State.SENT, (CLEAR, SEND, TELL)))
EARLY_SLOT = changed(SENDER, State.SENT, Fact.ACK_1, Step(State.EMPTY, (TELL,)))
EARLY_END = changed(SENDER, State.LAST_SENT, Fact.ACK_1, Step(State.ENDED))
ACK_2_FIRST = changed(RECEIVER, State.LISTENING, Fact.ARRIVED, Step(State.READING, (ACK_1, ACK_2, TELL)))
UNCLEARED = changed(SENDER, State.EMPTY, Fact.WRITTEN, Step(State.SENT, (SEND,)))
TOLD_TWICE = changed(RECEIVER, State.LISTENING, Fact.ARRIVED, Step(State.READING, (ACK_1, TELL, TELL)))
NO_ACK_2 = changed(RECEIVER, State.READING, Fact.READ, Step(State.LISTENING, (CLEAR,)))


@pytest.mark.parametrize(
    ("mutant", "found"),
    [
        (Model((2,), sender=EARLY_SOURCE), "WRITTEN|the reader"),
        (Model((3,), sender=EARLY_SLOT), "slot that is taken"),
        (Model((1,), sender=EARLY_END), "credit outstanding"),
        (Model((2,), receiver=ACK_2_FIRST), "is not allowed|slot that is taken|the reader takes"),
        (Model((2,), sender=UNCLEARED), "WRITTEN"),
        (Model((2,), receiver=TOLD_TWICE), "nothing goes on"),
        (Model((2,), receiver=NO_ACK_2), "nothing goes on"),
        (Model((3,), acks_share=True), "slot that is taken|is not allowed"),
    ],
    ids=["source before ack 1", "slot before ack 2", "end before ack 2", "ack 2 before the read",
         "semaphore not cleared", "worker told twice", "no ack 2", "acks from one address"],
)  # fmt: skip
def test_a_planted_bug_is_found(mutant: Model, found: str) -> None:
    with pytest.raises(Violation, match=found):
        mutant.check()


def test_the_documents_have_the_tables() -> None:
    """Else: put what ``python -m edm_page`` prints at the end of ``docs/edm.md``."""
    page = Path(__file__).resolve().parents[3] / "docs" / "edm.md"
    assert page.read_text().endswith(tables() + "\n")
