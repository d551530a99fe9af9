-- Format 1. Times are nanoseconds since 1970-01-01T00:00:00Z. `doc` is the row as JSON; the other
-- columns repeat what queries and checks need. `pos` is the order of recording.

CREATE TABLE workspaces (
    id TEXT NOT NULL PRIMARY KEY,
    doc TEXT NOT NULL
) STRICT;

CREATE TABLE projects (
    id TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    doc TEXT NOT NULL
) STRICT;

CREATE TABLE principals (
    id TEXT NOT NULL PRIMARY KEY,
    doc TEXT NOT NULL
) STRICT;

CREATE TABLE keys (
    pos INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    project_id TEXT NOT NULL,
    version INTEGER NOT NULL,
    secret_sha256 TEXT NOT NULL UNIQUE,
    doc TEXT NOT NULL
) STRICT;

CREATE TABLE budgets (
    project_id TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    doc TEXT NOT NULL
) STRICT;

CREATE TABLE jobs (
    pos INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id TEXT NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    active INTEGER NOT NULL,
    deleted INTEGER NOT NULL,
    lineage TEXT NOT NULL,
    idempotency_key TEXT,
    doc TEXT NOT NULL,
    UNIQUE (project_id, id)
) STRICT;
CREATE UNIQUE INDEX jobs_active_name ON jobs (project_id, name) WHERE active = 1;
CREATE UNIQUE INDEX jobs_key ON jobs (project_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX jobs_list ON jobs (project_id, pos, kind) WHERE deleted = 0;
CREATE INDEX jobs_active ON jobs (project_id, pos) WHERE active = 1;
CREATE INDEX jobs_name ON jobs (project_id, name, pos) WHERE deleted = 0;
CREATE INDEX jobs_lineage ON jobs (project_id, lineage, pos);

CREATE TABLE trials (
    id TEXT NOT NULL PRIMARY KEY,
    project_id TEXT NOT NULL,
    job_pos INTEGER NOT NULL REFERENCES jobs (pos),
    idx INTEGER NOT NULL,
    version INTEGER NOT NULL,
    state TEXT NOT NULL,
    lease_id TEXT,
    next_at INTEGER,
    doc TEXT NOT NULL
) STRICT;
CREATE INDEX trials_job ON trials (job_pos, idx);
CREATE INDEX trials_state ON trials (project_id, state, job_pos) WHERE idx = 0;
CREATE INDEX trials_due ON trials (next_at, id) WHERE next_at IS NOT NULL;

CREATE TABLE leases (
    id TEXT NOT NULL PRIMARY KEY,
    project_id TEXT NOT NULL,
    trial_id TEXT NOT NULL REFERENCES trials (id),
    version INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    next_at INTEGER,
    doc TEXT NOT NULL
) STRICT;
CREATE INDEX leases_trial ON leases (trial_id);
CREATE INDEX leases_open ON leases (id) WHERE ended = 0;
CREATE INDEX leases_due ON leases (next_at, id) WHERE next_at IS NOT NULL;

CREATE TABLE outputs (
    trial_id TEXT NOT NULL REFERENCES trials (id),
    path TEXT NOT NULL,
    project_id TEXT NOT NULL,
    doc TEXT NOT NULL,
    PRIMARY KEY (trial_id, path)
) STRICT, WITHOUT ROWID;

CREATE TABLE syncs (
    pos INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id TEXT NOT NULL,
    id TEXT NOT NULL,
    job_name TEXT NOT NULL,
    doc TEXT NOT NULL,
    UNIQUE (project_id, id)
) STRICT;
CREATE INDEX syncs_newest ON syncs (project_id, pos);
CREATE INDEX syncs_name ON syncs (project_id, job_name, pos);

CREATE TABLE segments (
    pos INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    project_id TEXT NOT NULL,
    job_id TEXT NOT NULL,
    start_at INTEGER NOT NULL,
    end_at INTEGER NOT NULL,
    doc TEXT NOT NULL
) STRICT;
CREATE INDEX segments_project ON segments (project_id, pos);
CREATE INDEX segments_job ON segments (project_id, job_id, pos);

CREATE TABLE entries (
    pos INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    project_id TEXT NOT NULL,
    segment_id TEXT NOT NULL,
    doc TEXT NOT NULL
) STRICT;
CREATE INDEX entries_project ON entries (project_id, pos);

CREATE TABLE events (
    pos INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id TEXT NOT NULL,
    job_id TEXT,
    kind TEXT NOT NULL,
    at INTEGER NOT NULL,
    doc TEXT NOT NULL
) STRICT;
CREATE INDEX events_job ON events (project_id, job_id, pos) WHERE job_id IS NOT NULL;

CREATE TRIGGER events_keep_update BEFORE UPDATE ON events
    BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;
CREATE TRIGGER events_keep_delete BEFORE DELETE ON events
    BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;
CREATE TRIGGER segments_keep_update BEFORE UPDATE ON segments
    BEGIN SELECT RAISE(ABORT, 'segments are append-only'); END;
CREATE TRIGGER segments_keep_delete BEFORE DELETE ON segments
    BEGIN SELECT RAISE(ABORT, 'segments are append-only'); END;
CREATE TRIGGER entries_keep_update BEFORE UPDATE ON entries
    BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END;
CREATE TRIGGER entries_keep_delete BEFORE DELETE ON entries
    BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END;
