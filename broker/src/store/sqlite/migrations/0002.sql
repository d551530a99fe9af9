-- Format 2: nodes without an owner, and who looks for them.

CREATE TABLE strays (
    provider_id TEXT NOT NULL,
    node_id TEXT NOT NULL,
    version INTEGER NOT NULL,
    open INTEGER NOT NULL,
    doc TEXT NOT NULL,
    PRIMARY KEY (provider_id, node_id)
) STRICT;
CREATE INDEX strays_open ON strays (provider_id, node_id) WHERE open = 1;

CREATE TABLE sweepers (
    provider_id TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    doc TEXT NOT NULL
) STRICT;
