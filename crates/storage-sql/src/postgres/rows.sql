-- One row: how many rows of the history there are up to the revision up to which compaction has deleted what it may. Behind the
-- oldest readable revision every revision has its row. So rows that somebody has deleted by hand are noticed. It counts nothing
-- where its revision or incarnation is not that of the other tables: then an older release has swept, or the history was exchanged.
CREATE TABLE keelson_rows (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    incarnation bigint NOT NULL,
    swept bigint NOT NULL,
    counted bigint NOT NULL
) WITH (fillfactor = 10);

INSERT INTO keelson_rows (incarnation, swept, counted)
    SELECT s.incarnation, w.swept, (SELECT count(*) FROM keelson_history h WHERE h.revision <= w.swept)
    FROM keelson_state s, keelson_sweep w;

-- As before, and counts the rows. Older releases call it too.
CREATE OR REPLACE FUNCTION keelson_sweep_1(max_rows integer) RETURNS boolean LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    known bigint;
    until bigint;
    since bigint;
    reached bigint;
    passed bigint;
    gone bigint[];
    deleted_rows bigint;
    before bigint;
    -- The role of another server may have no right to the table.
    counts boolean := has_table_privilege('keelson_rows', 'SELECT') AND has_table_privilege('keelson_rows', 'UPDATE');
BEGIN
    SELECT w.swept INTO since FROM keelson_sweep w FOR UPDATE SKIP LOCKED;
    IF since IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT s.oldest, s.incarnation INTO until, known FROM keelson_state s;
    IF since >= until THEN
        RETURN false;
    END IF;
    IF counts THEN
        SELECT r.counted INTO before FROM keelson_rows r WHERE r.swept = since AND r.incarnation = known;
        IF before IS NULL THEN
            SELECT count(*) INTO before FROM keelson_history h WHERE h.revision <= since;
        END IF;
    END IF;
    -- A row at or below the oldest revision hides the one before it for ever; a delete hides itself too.
    SELECT count(*), max(r.revision), array_agg(r.previous) || array_agg(r.revision) FILTER (WHERE r.deleted)
    INTO passed, reached, gone
    FROM (
        SELECT h.revision, h.previous, h.deleted FROM keelson_history h
        WHERE h.revision > since AND h.revision <= until ORDER BY h.revision LIMIT max_rows
    ) r;
    DELETE FROM keelson_history h WHERE h.revision = ANY (gone);
    GET DIAGNOSTICS deleted_rows = ROW_COUNT;
    IF passed < max_rows THEN
        reached := until;
    END IF;
    UPDATE keelson_sweep SET swept = reached;
    IF counts THEN
        UPDATE keelson_rows SET incarnation = known, swept = reached, counted = before + passed - deleted_rows;
    END IF;
    RETURN reached < until;
END $$;
