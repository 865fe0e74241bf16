"""What steps that only record have in common: one file, one word, changed only when a person asks for it."""

from __future__ import annotations

from env.knob import Knob
from env.step import Change, State

ON_REQUEST = "recorded, not changed; {flag} {example} would set it"


class Recorded(Knob):
    """One file that is read into the record, and written only on request."""

    path = ""
    flag = ""
    example = ""
    absent = ""

    def asked(self) -> str | None:
        """The value that the caller asked for."""
        return None

    def show(self, word: str) -> str:
        """The word as a person reads it."""
        return word

    def probe(self) -> State:
        """As wanted when nothing is wanted."""
        wanted = self.asked()
        reading = self.host.files.read(self.path)
        if reading.missing:
            return self.state("unavailable", None, wanted, self.absent, self.path)
        if reading.failure or reading.word is None:
            failure = reading.failure or self.host.files.failure(self.path, 5)
            return self.unreadable(failure, wanted, self.path)
        current = self.show(reading.word)
        if wanted is None:
            note = ON_REQUEST.format(flag=self.flag, example=self.example) if self.flag else ""
            return self.state("stable", current, None, note, self.path)
        if reading.word == wanted:
            return self.state("stable", current, wanted, "", self.path)
        remedy = f"echo {wanted} | sudo tee {self.path}"
        return self.unmet([self.path], current, wanted, f"asked for {wanted}", self.path, remedy)

    def changes(self) -> list[Change]:
        """One write, when asked."""
        wanted = self.asked()
        old = self.host.files.read(self.path).word
        if wanted is None or old is None or old == wanted or self.host.unwritable(self.path):
            return []
        return [Change(self.name, self.path, old, wanted)]
