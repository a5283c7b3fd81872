"""What the system says of processor time, as a test wants it."""

from types import SimpleNamespace


class FakeMachine:
    """What the system says of processor time: a second passes with each look, others use a share of it."""

    def __init__(self, others_percent: float) -> None:
        self.others_percent = others_percent
        self._user_s = self._idle_s = 0.0

    def cpu_times(self) -> SimpleNamespace:
        self._user_s += self.others_percent / 100.0
        self._idle_s += 1.0 - self.others_percent / 100.0
        return SimpleNamespace(user=self._user_s, idle=self._idle_s)


class FakeProcess:
    """This process, which uses no processor time and has no children."""

    pid = 1

    def children(self, *, recursive: bool) -> list[object]:
        return []

    def cpu_times(self) -> SimpleNamespace:
        return SimpleNamespace(user=0.0, system=0.0)
