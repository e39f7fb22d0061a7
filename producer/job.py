"""One job as its collector has it at hand: journal, window and the doors to Redis, shared by feeder, receiver, janitor.

It decides nothing. It lives in the collector's one thread, between its lock and its end.
"""

import sys

import redis

from common.claims import Claims
from common.settings import Settings
from producer.estimates import Estimates
from producer.fleet import Fleet, ModelChoice, route
from producer.hints import Hints
from producer.job_directory import JobDirectory
from producer.journal import Journal
from producer.payload import Payloads
from producer.usage import Usage
from producer.window import Window

NO_LIMIT_BYTES = sys.maxsize


class FencedError(Exception):
    """Redis has another epoch than this collector's journal, or none: it was emptied, replaced, or somebody else's."""


class Job:
    """What the parts of one collector share."""

    def __init__(self, directory: JobDirectory, *, settings: Settings, client: redis.Redis, journal: Journal) -> None:
        self.directory = directory
        self.spec = directory.spec
        self.id = directory.spec.job
        self.settings = settings
        self.client = client
        self.claims = Claims(client)
        self.journal = journal
        self.window = Window()
        for row, got in journal.open_micro_batches():
            self.window.add(row, got=got)
        self.payloads = Payloads(directory)
        self.hints = Hints(settings, job=self.id, priority=directory.spec.priority)
        self.fleet = Fleet()
        """As of the last look."""
        self.models = ModelChoice(directory.spec.model)
        self.estimates = Estimates()
        self.usage = Usage(journal.counts.gpu_s)
        self.full = False
        """Whether Redis has no room for more offers, as of the last look or refusal."""
        self.headroom_bytes = NO_LIMIT_BYTES
        """What may still be offered before that is so: as of the last look, less what was offered since."""

    def meet(self, fleet: Fleet) -> None:
        """Note who is live now."""
        self.fleet = fleet
        self.models.update(fleet, self.journal.digests)

    def route(self, model: str) -> str:
        """The queue for hints of micro-batches of `model`, now."""
        return route(model, self.fleet, self.journal.digests)

    def close(self) -> None:
        """Close what it opened; the Redis client stays open."""
        self.hints.close()
        self.payloads.close()
