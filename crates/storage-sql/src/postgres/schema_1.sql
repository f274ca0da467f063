-- Format 1. Every change is a row of keelson_history, numbered by its revision; a row without a value is a delete.
-- Rows are only ever inserted, and deleted by compaction. Paths are compared bytewise, whatever the database's collation.

CREATE TABLE keelson_history (
    revision bigint PRIMARY KEY,
    path text COLLATE "C" NOT NULL,
    -- The revision of the path's row before this one, which compaction may delete once it may delete anything below this.
    previous bigint,
    deleted boolean NOT NULL,
    value bytea,
    CHECK (deleted = (value IS NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.05, vacuum_truncate = off);

-- Large values are compressed; where the server has it (14 and newer, built with it), in the way that costs least.
DO $$ BEGIN
    EXECUTE 'ALTER TABLE keelson_history ALTER COLUMN value SET COMPRESSION lz4';
EXCEPTION WHEN feature_not_supported OR syntax_error OR invalid_parameter_value THEN
    NULL;
END $$;

CREATE INDEX keelson_history_path ON keelson_history (path, revision DESC);

-- When versions end by themselves, in seconds since 1970. A row whose version is no longer the newest means nothing.
CREATE TABLE keelson_expiry (
    ends bigint NOT NULL,
    path text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    PRIMARY KEY (ends, path, revision)
);

-- One row. Whoever commits locks it first and raises its revision last: so revisions become visible in order, without a
-- gap, and a read that sees this row sees exactly the history up to its revision.
CREATE TABLE keelson_state (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    format integer NOT NULL,
    -- Another number says that the history is another, though the tables have the same names.
    incarnation bigint NOT NULL,
    -- The cluster and the database that the tables were made in; a copy of them finds itself elsewhere.
    home text NOT NULL,
    revision bigint NOT NULL,
    -- The oldest revision that may be read.
    oldest bigint NOT NULL
) WITH (fillfactor = 10);

-- One row, apart from the state because whoever sweeps keeps it locked for a while: up to which revision compaction has deleted what it may.
CREATE TABLE keelson_sweep (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    swept bigint NOT NULL
);

INSERT INTO keelson_state (format, incarnation, home, revision, oldest)
    VALUES (1, hashtextextended(gen_random_uuid()::text, 0), '', 1, 0);
INSERT INTO keelson_sweep (swept) VALUES (0);

-- Applies transactions that do not touch what another of them writes. Each is refused by its first compare that does not
-- hold; what the others write gets the revisions from base + 1 on, in order. Wanted: -1 no value, -2 any value, else the
-- revision of the value. A write without a value is a delete, and one of an absent path does nothing.
CREATE FUNCTION keelson_commit_1(
    known bigint,
    compare_tx integer[], compare_path text[], compare_wanted bigint[],
    write_tx integer[], write_path text[], write_value bytea[], write_ends bigint[],
    -- The revision before, and which of the writes were done, by their places counted from 1.
    OUT base bigint, OUT written integer[],
    -- The transactions that were refused, by which compare, and what the path holds instead.
    OUT refused integer[], OUT refused_at integer[], OUT refused_revision bigint[], OUT refused_value bytea[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    -- Every statement below sees what the holder of the lock before us has committed.
    SELECT s.revision INTO base FROM keelson_state s WHERE s.incarnation = known FOR UPDATE;
    IF base IS NULL THEN
        RAISE EXCEPTION 'the history was exchanged' USING ERRCODE = 'KL001';
    END IF;

    SELECT coalesce(array_agg(f.tx), '{}'), array_agg(f.at), array_agg(f.revision), array_agg(f.value)
    INTO refused, refused_at, refused_revision, refused_value
    FROM (
        SELECT DISTINCT ON (c.tx) c.tx, c.at::integer AS at, n.revision, n.value
        FROM unnest(compare_tx, compare_path, compare_wanted) WITH ORDINALITY AS c (tx, path, wanted, at)
        LEFT JOIN LATERAL (
            SELECT l.revision, l.value FROM (
                SELECT h.revision, h.deleted, h.value FROM keelson_history h
                WHERE h.path = c.path ORDER BY h.revision DESC LIMIT 1
            ) l WHERE NOT l.deleted
        ) n ON true
        WHERE NOT CASE c.wanted
            WHEN -1 THEN n.revision IS NULL
            WHEN -2 THEN n.revision IS NOT NULL
            ELSE n.revision IS NOT DISTINCT FROM c.wanted
        END
        ORDER BY c.tx, c.at
    ) f;

    WITH numbered AS MATERIALIZED (
        SELECT w.at, w.path, w.value, w.ends, n.revision AS previous,
            base + row_number() OVER (ORDER BY w.at) AS revision
        FROM unnest(write_tx, write_path, write_value, write_ends) WITH ORDINALITY AS w (tx, path, value, ends, at)
        LEFT JOIN LATERAL (
            SELECT h.revision, h.deleted FROM keelson_history h
            WHERE h.path = w.path ORDER BY h.revision DESC LIMIT 1
        ) n ON true
        WHERE w.tx <> ALL (refused) AND (w.value IS NOT NULL OR NOT n.deleted)
    ), inserted AS (
        INSERT INTO keelson_history (revision, path, previous, deleted, value)
        SELECT n.revision, n.path, n.previous, n.value IS NULL, n.value FROM numbered n
    ), ending AS (
        INSERT INTO keelson_expiry (ends, path, revision)
        SELECT n.ends, n.path, n.revision FROM numbered n WHERE n.ends IS NOT NULL
    )
    SELECT coalesce(array_agg(n.at::integer ORDER BY n.at), '{}') INTO written FROM numbered n;

    IF cardinality(written) > 0 THEN
        UPDATE keelson_state SET revision = base + cardinality(written);
        -- A hint alone: whoever misses it looks by itself a little later.
        NOTIFY keelson;
    END IF;
END $$;

-- Deletes some of what no readable revision shows; returns whether more remains, and null while another server does it.
CREATE FUNCTION keelson_sweep_1(max_rows integer) RETURNS boolean LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    until bigint;
    since bigint;
    reached bigint;
    passed bigint;
    gone bigint[];
BEGIN
    SELECT w.swept INTO since FROM keelson_sweep w FOR UPDATE SKIP LOCKED;
    IF since IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT s.oldest INTO until FROM keelson_state s;
    IF since >= until THEN
        RETURN false;
    END IF;
    -- A row at or below the oldest revision hides the one before it for ever; a delete hides itself too.
    SELECT count(*), max(r.revision), array_agg(r.previous) || array_agg(r.revision) FILTER (WHERE r.deleted)
    INTO passed, reached, gone
    FROM (
        SELECT h.revision, h.previous, h.deleted FROM keelson_history h
        WHERE h.revision > since AND h.revision <= until ORDER BY h.revision LIMIT max_rows
    ) r;
    DELETE FROM keelson_history h WHERE h.revision = ANY (gone);
    IF passed < max_rows THEN
        reached := until;
    END IF;
    UPDATE keelson_sweep SET swept = reached;
    RETURN reached < until;
END $$;

-- Makes the tables those of another history that begins above this one. For whoever has put back an older state of the database:
-- the number must be more than the writes that were lost.
CREATE FUNCTION keelson_restored(more bigint DEFAULT 1000000000) RETURNS bigint LANGUAGE sql AS $$
    UPDATE keelson_state SET
        incarnation = hashtextextended(gen_random_uuid()::text, 0),
        revision = revision + more,
        oldest = revision + more
    RETURNING revision
$$;
