"""All errors raised on purpose: what is wrong, what was expected, what to do.

A message may contain values of a row, so it stays with the party that raised the error, and with
the owner of its process. Other parties receive ``safe_text``, which consists of names only: of
error classes, parties, messages and their fields.
"""

from __future__ import annotations


class FedcircuitsError(Exception):
    """Base class: catch this to catch everything the library raises on purpose."""

    @property
    def safe_text(self) -> str:
        """The text that other parties receive."""
        return type(self).__name__


class StructureError(FedcircuitsError, ValueError):
    """A graph that is not a circuit: not smooth, not decomposable, a child that does not exist."""


class ParameterError(FedcircuitsError, ValueError):
    """Values that do not fit the graph: missing, of the wrong shape, negative."""


class TableError(FedcircuitsError, ValueError):
    """Data that cannot be read as a typed table."""


class QueryError(FedcircuitsError, ValueError):
    """A query that this model does not support, or evidence with probability zero."""


class FileError(FedcircuitsError, ValueError):
    """A file that is not what it claims to be, is damaged, or comes from another version."""


class DatasetError(FedcircuitsError, LookupError):
    """A data set that is unknown, cannot be found, or differs from its manifest."""


class ExtraMissingError(FedcircuitsError, ImportError):
    """An optional dependency is needed; the message names the extra to install."""


class FederationError(FedcircuitsError, ValueError):
    """Parties that do not fit together: columns with two meanings, rows that cannot be matched,
    or something that a party has not allowed."""


class SiteError(FederationError):
    """What a site refuses or cannot do, in a text that others may read."""

    @property
    def safe_text(self) -> str:
        return str(self)


class ProtocolError(FedcircuitsError, RuntimeError):
    """A message that violates the protocol, or parties that wait for each other."""


class MessageError(ProtocolError):
    """A message that violates its method. It blames ``sender``, not the reader."""

    def __init__(self, sender: str, tag: str, field: str, problem: str) -> None:
        where = f"field {field!r}: " if field else ""
        super().__init__(
            f"{sender} sent {tag!r} that does not fit, {where}{problem}; "
            f"is {sender}'s fedcircuits of the same version?"
        )
        self.sender, self.tag, self.field, self.problem = sender, tag, field, problem

    @property
    def safe_text(self) -> str:
        where = f", field {self.field!r}" if self.field else ""
        return f"{self.sender} sent {self.tag!r} that does not fit{where}"

    def __reduce__(self) -> tuple[type[MessageError], tuple[str, str, str, str]]:
        return type(self), (self.sender, self.tag, self.field, self.problem)


class VersionError(MessageError):
    """A party that runs another version of the library or of a method."""

    def __init__(self, sender: str, tag: str, field: str, problem: str) -> None:
        super().__init__(sender, tag, field, problem)
        self.args = (f"{sender} runs {problem}: install the same fedcircuits at all parties",)

    @property
    def safe_text(self) -> str:
        return str(self)  # names of versions


class PartyLostError(FedcircuitsError, RuntimeError):
    """A party that failed, died or no longer answers while others still need it.

    ``words`` is what other parties receive if ``message`` is not for them.
    """

    def __init__(self, party: str, message: str, words: str | None = None) -> None:
        super().__init__(message)
        self.party, self.words = party, message if words is None else words

    @property
    def safe_text(self) -> str:
        return self.words

    def __reduce__(self) -> tuple[type[PartyLostError], tuple[str, str, str]]:
        return type(self), (self.party, str(self), self.words)
