-- Applies transactions as keelson_commit_1 does, at less cost when every compare holds, as most do. What several of them
-- compare is sent once: compare_of says for each compare of each transaction which it is, counted from 1. Plain: no write
-- deletes a path that the compares leave open whether it is there. Ends may be empty. Written is null when everything was.
CREATE FUNCTION keelson_commit_2(
    known bigint,
    compare_path text[], compare_wanted bigint[], compare_tx integer[], compare_of integer[],
    write_tx integer[], write_path text[], write_value bytea[], write_ends bigint[], plain boolean,
    OUT base bigint, OUT written integer[],
    OUT refused integer[], OUT refused_at integer[], OUT refused_revision bigint[], OUT refused_value bytea[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    -- Every statement below sees what the holder of the lock before us has committed.
    SELECT s.revision INTO base FROM keelson_state s WHERE s.incarnation = known FOR UPDATE;
    IF base IS NULL THEN
        RAISE EXCEPTION 'the history was exchanged' USING ERRCODE = 'KL001';
    END IF;

    IF NOT plain OR EXISTS (
        SELECT 1 FROM (
            SELECT c.wanted, coalesce((
                SELECT CASE WHEN h.deleted THEN -1 ELSE h.revision END FROM keelson_history h
                WHERE h.path = c.path ORDER BY h.revision DESC LIMIT 1
            ), -1) AS held
            FROM unnest(compare_path, compare_wanted) AS c (path, wanted)
        ) n
        WHERE CASE n.wanted WHEN -2 THEN n.held = -1 ELSE n.held <> n.wanted END
    ) THEN
        SELECT c.base, c.written, c.refused, c.refused_at, c.refused_revision, c.refused_value
        INTO base, written, refused, refused_at, refused_revision, refused_value
        FROM keelson_commit_1(
            known, compare_tx,
            (SELECT array_agg(compare_path[o.place] ORDER BY o.at) FROM unnest(compare_of) WITH ORDINALITY AS o (place, at)),
            (SELECT array_agg(compare_wanted[o.place] ORDER BY o.at) FROM unnest(compare_of) WITH ORDINALITY AS o (place, at)),
            write_tx, write_path, write_value, write_ends
        ) c;
        RETURN;
    END IF;

    refused := '{}';
    IF cardinality(write_path) = 0 THEN
        RETURN;
    END IF;
    INSERT INTO keelson_history (revision, path, previous, deleted, value)
    SELECT base + w.at, w.path, (
        SELECT h.revision FROM keelson_history h WHERE h.path = w.path ORDER BY h.revision DESC LIMIT 1
    ), w.value IS NULL, w.value
    FROM unnest(write_path, write_value) WITH ORDINALITY AS w (path, value, at);
    IF cardinality(write_ends) > 0 THEN
        INSERT INTO keelson_expiry (ends, path, revision)
        SELECT w.ends, w.path, base + w.at
        FROM unnest(write_path, write_ends) WITH ORDINALITY AS w (path, ends, at) WHERE w.ends IS NOT NULL;
    END IF;
    UPDATE keelson_state SET revision = base + cardinality(write_path);
    -- A hint alone: whoever misses it looks by itself a little later.
    NOTIFY keelson;
END $$;
