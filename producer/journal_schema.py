"""The tables of a job's journal, and how its SQLite file is opened; `journal` writes them, `journal_reader` asks them.

One writer (the job's collector, under its lock), any number of readers. WAL with `synchronous=FULL`: what is committed
survives the power going away. WAL needs a local disk.
"""

import sqlite3
from pathlib import Path

from common.errors import RefusedError
from producer.disk import journal_refused, writing_to

VERSION = 2
_CACHE_KIB = 16 * 1024
"""What one commit changes stays in memory until its end."""
_CHECKPOINT_PAGES = 4_000
"""16 MB of log between two checkpoints: `pending` is written and deleted in quick turn, mostly in the log alone."""
LOG_BYTES = _CHECKPOINT_PAGES * 4096
_BUSY_S = 30.0

_TABLES = """
CREATE TABLE checkpoint (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    epoch INTEGER NOT NULL,          -- raised by each collector at its start
    owner TEXT NOT NULL,             -- random, of the newest epoch asked for; Redis has it too: tells copies apart
    owner_epoch INTEGER NOT NULL,    -- the epoch it was asked for: this one, or (a crash between) the next
    frontier INTEGER NOT NULL,       -- lowest seq not yet given a place in the ordered file
    out_bytes INTEGER NOT NULL,      -- length of the ordered file below the frontier
    error_bytes INTEGER NOT NULL,    -- length of errors.jsonl below the frontier
    input_offset INTEGER NOT NULL,   -- where reading goes on: every line before it is settled here
    input_line INTEGER NOT NULL,     -- the 1-based line that starts there
    input_seq INTEGER NOT NULL,      -- the seq its request would get
    mb_high INTEGER NOT NULL,        -- highest micro-batch number given out
    digests TEXT NOT NULL,           -- JSON: model -> digest pinned by the job's first claim of it
    counts TEXT NOT NULL,            -- JSON: producer.counts
    state TEXT NOT NULL,             -- open, paused, cancelling, done
    exit_code INTEGER,               -- set with `done`
    round INTEGER NOT NULL,          -- raised by one by each rerun
    shown INTEGER NOT NULL,          -- the round whose places stand here; below `round` while a rerun runs
    steering TEXT NOT NULL           -- JSON: producer.steering
);
CREATE TABLE request (
    seq INTEGER PRIMARY KEY,         -- 0-based among non-blank lines
    line INTEGER NOT NULL,
    "offset" INTEGER NOT NULL,       -- byte range of the physical line, its LF included
    length INTEGER NOT NULL,
    id_hash BLOB                     -- NULL: no custom_id, or one that an earlier line has; no index: see known_ids
);
CREATE TABLE micro_batch (
    mb INTEGER PRIMARY KEY,
    round INTEGER NOT NULL,
    model TEXT NOT NULL,
    kind TEXT NOT NULL,              -- normal, solo
    seqs BLOB NOT NULL,              -- msgpack: first seq, then each difference to the one before; never changes
    payload_digest BLOB NOT NULL,    -- what its requests say, so that a payload built again is known to be the same
    payload_bytes INTEGER NOT NULL,  -- size of the payload in Redis
    fed_at REAL NOT NULL,            -- wall clock, UTC; carried to results, never compared
    deliveries INTEGER NOT NULL,     -- holds lost so far
    repairs INTEGER NOT NULL,        -- times its entries were lost after they were published
    open INTEGER NOT NULL            -- 1 until each of its seqs has a result, or travels on in a newer one
);
CREATE INDEX micro_batch_open ON micro_batch (mb) WHERE open = 1;
CREATE TABLE result (
    seq INTEGER NOT NULL,
    round INTEGER NOT NULL,
    status INTEGER NOT NULL,
    code TEXT NOT NULL,              -- ErrorKind, empty for a good result
    attempts INTEGER NOT NULL,
    out_offset INTEGER,              -- set when the frontier passes the row; of a seq's results, the shown one's alone
    out_length INTEGER,              -- its LF included
    PRIMARY KEY (seq, round)
) WITHOUT ROWID;
CREATE TABLE pending (
    seq INTEGER PRIMARY KEY,         -- of the first round, until the ordered file is synced past it
    failed INTEGER NOT NULL,
    line BLOB NOT NULL
);
CREATE TABLE loss (
    seq INTEGER NOT NULL,            -- unfinished when the hold `token` on its micro-batch was lost
    token TEXT NOT NULL,
    round INTEGER NOT NULL,
    armed INTEGER NOT NULL,          -- it ran alone, and its run had begun
    cause TEXT NOT NULL,             -- certified: self, outside, left; none: vanished; waited: alone, not yet begun
    PRIMARY KEY (seq, token)
) WITHOUT ROWID;
CREATE TABLE rerun (
    round INTEGER PRIMARY KEY,
    selection TEXT NOT NULL          -- JSON: producer.selection
);
CREATE TABLE again (
    seq INTEGER PRIMARY KEY          -- selected by the rerun, and not yet in a micro-batch of its round
);
CREATE TABLE renewed (
    seq INTEGER PRIMARY KEY,         -- of a rerun's round, until the ordered file is written anew
    failed INTEGER NOT NULL,
    line BLOB NOT NULL
);
INSERT INTO checkpoint VALUES (1, 0, '', 0, 0, 0, 0, 0, 1, 0, 0, '{}', '{}', 'open', NULL, 0, 0, '{}');
"""


def open_for_writing(path: Path) -> sqlite3.Connection:
    """The journal at `path`, made with its tables if it is not there. Raises `RefusedError`, `StoppedError`."""
    with writing_to(path, what="the journal"):
        path.touch(mode=0o600)
    connection = _connect(f"{path.absolute().as_uri()}?mode=rw", path)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        if _version(connection) == 0:
            connection.executescript(f"BEGIN IMMEDIATE;{_TABLES}PRAGMA user_version = {VERSION};COMMIT")
    except sqlite3.Error as error:
        connection.close()
        raise journal_refused(error, path=path) from error
    _check_version(connection, path)
    return connection


def open_for_reading(path: Path) -> sqlite3.Connection:
    """The journal at `path` for questions only, also while a collector writes it. Raises `RefusedError`."""
    if not path.is_file():
        raise RefusedError("this job has no journal yet", where=str(path))
    connection = _connect(f"{path.absolute().as_uri()}?mode=ro", path)
    _check_version(connection, path)
    return connection


def _connect(uri: str, path: Path) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_BUSY_S, check_same_thread=False)
        connection.execute("PRAGMA schema_version")
    except sqlite3.Error as error:
        raise journal_refused(error, path=path) from error
    return connection


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    version = _version(connection)
    if version != VERSION:
        raise RefusedError(
            f"the journal has version {version}, this program writes {VERSION}",
            where=str(path),
            do="continue the job with the version that began it",
        )
