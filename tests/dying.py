"""A worker's death that a test can watch without dying of it."""

from typing import NoReturn

from common.log import Event
from worker.ending import Ending


class Died(BaseException):
    """Instead of the end of this process."""


class Witness(Ending):
    """An ending whose death can be watched."""

    def die(self, code: int, *, event: Event, reason: str) -> NoReturn:
        self.died = (code, event)
        raise Died
