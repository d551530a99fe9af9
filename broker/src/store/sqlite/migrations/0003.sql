-- Format 3: what was published for others to run.

CREATE TABLE publications (
    pos INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    revision TEXT NOT NULL,
    namespace TEXT NOT NULL,
    project_id TEXT NOT NULL,
    doc TEXT NOT NULL,
    UNIQUE (kind, name, revision)
) STRICT;
CREATE INDEX publications_name ON publications (kind, name, pos);
CREATE INDEX publications_namespace ON publications (namespace, pos);

CREATE TRIGGER publications_keep_update BEFORE UPDATE ON publications
    BEGIN SELECT RAISE(ABORT, 'publications are append-only'); END;
CREATE TRIGGER publications_keep_delete BEFORE DELETE ON publications
    BEGIN SELECT RAISE(ABORT, 'publications are append-only'); END;
