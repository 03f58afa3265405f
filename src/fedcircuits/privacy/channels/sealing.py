"""Messages that only their receiver can read: whoever carries them sees tags, ends and sizes.

In a first round every party sends the others a key for this run (sessions.py). Then the program
goes on as it would, and each of its messages is sealed for its receiver.

    seal/hello   party → party: key of the run (32 bytes), signature (64)
    any tag      party → party: its number (8 bytes), the message sealed (16 bytes longer)

A message that was changed, left out, sent again, put under another tag or carried over from another
run is refused. Keys of a run are forgotten with it: who learns an identity later cannot read what
was sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TypeVar

from fedcircuits.errors import FederationError, PartyLostError
from fedcircuits.federation.flow import (
    Effect,
    Flow,
    Program,
    Recv,
    Send,
    broadcast,
    receive,
    send,
    through,
)
from fedcircuits.privacy.channels.identity import Identity
from fedcircuits.privacy.channels.sessions import Handshake, RunKey, Sealed, Session
from fedcircuits.privacy.sharing.randomness import fresh_key

T = TypeVar("T")


def sealed(
    program: Program[T],
    me: str,
    identity: Identity,
    known: Mapping[str, bytes],
    run: str,
    key: bytes | None = None,
) -> Flow[T]:
    """The same flow with all its messages sealed: ``Program(sealed, {"program": program, …})``.

    known    public keys of all parties of the run by name, as each has given it beforehand
    run      a name of the run that no other run of these parties has
    key      for this party and this run (``fresh_key()``); drawn when the flow begins if None
    """
    if known.get(me, identity.public) != identity.public:
        raise FederationError(f"the public key known of {me} is not that of its identity")
    others = [party for party in known if party != me]
    hands = Handshake.of(me, identity, known, run, key or fresh_key())
    yield from broadcast(others, hands.hello())
    sessions, lost = {}, {}
    for party in others:
        try:
            sessions[party] = hands.session(party, (yield from receive(party, RunKey)))
        except PartyLostError as error:  # the program hears it where it waits for the party
            lost[party] = error
    ends = partial(_sealed, me=me, sessions=sessions, lost=lost)
    return (yield from through(program.start(), ends))


def _sealed(
    effect: Effect, me: str, sessions: Mapping[str, Session], lost: Mapping[str, PartyLostError]
) -> Flow[object]:
    if not isinstance(effect, Send | Recv):
        return (yield effect)
    other = effect.receiver if isinstance(effect, Send) else effect.sender
    if other in lost:
        if isinstance(effect, Send):
            return None  # nobody is there to read it
        raise lost[other]
    if other not in sessions:
        raise FederationError(
            f"{me} has no public key of {other}, so {effect.tag!r} cannot be sealed: ask {other} "
            "for it and add it to the known keys"
        )
    session = sessions[other]
    if isinstance(effect, Send):
        body = session.seal(effect.tag, effect.data)
        yield from send(other, body, effect.tag, effect.reveals)
        return None
    return session.unseal(effect.tag, (yield from receive(other, Sealed, effect.tag)))
