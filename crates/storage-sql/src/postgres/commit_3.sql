-- Applies transactions as keelson_commit_1 does, at less cost when every compare holds, as most do. Each path is sent once, and
-- compares and writes name it by its place, counted from 1; compare_of says for each compare of each transaction which of
-- the distinct ones it is. The values stand one behind another in a single bytea, of which each write copies its own part:
-- it begins at its write_begin (from 1) and has its write_length bytes, none for a delete. Plain: no write deletes a path
-- that the compares leave open whether it is there. Ends may be empty. Written is null when everything was.
CREATE FUNCTION keelson_commit_3(
    known bigint, paths text[],
    compare_path integer[], compare_wanted bigint[], compare_tx integer[], compare_of integer[],
    write_tx integer[], write_path integer[], write_begin integer[], write_length integer[], write_values bytea,
    write_ends bigint[], plain boolean,
    OUT base bigint, OUT written integer[],
    OUT refused integer[], OUT refused_at integer[], OUT refused_revision bigint[], OUT refused_value bytea[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    -- Of each path: the revision of its newest row, below zero if that is a delete, null if there is none.
    held bigint[];
BEGIN
    -- Every statement below sees what the holder of the lock before us has committed.
    SELECT s.revision INTO base FROM keelson_state s WHERE s.incarnation = known FOR UPDATE;
    IF base IS NULL THEN
        RAISE EXCEPTION 'the history was exchanged' USING ERRCODE = 'KL001';
    END IF;

    held := ARRAY(
        SELECT (
            SELECT CASE WHEN h.deleted THEN -h.revision ELSE h.revision END FROM keelson_history h
            WHERE h.path = p.path ORDER BY h.revision DESC LIMIT 1
        )
        FROM unnest(paths) AS p (path)
    );
    IF NOT plain OR EXISTS (
        SELECT 1 FROM unnest(compare_path, compare_wanted) AS c (path, wanted)
        WHERE CASE c.wanted
            WHEN -1 THEN held[c.path] > 0
            WHEN -2 THEN (held[c.path] > 0) IS NOT TRUE
            ELSE held[c.path] IS DISTINCT FROM c.wanted
        END
    ) THEN
        SELECT c.base, c.written, c.refused, c.refused_at, c.refused_revision, c.refused_value
        INTO base, written, refused, refused_at, refused_revision, refused_value
        FROM keelson_commit_1(
            known, compare_tx,
            ARRAY(SELECT paths[compare_path[o.place]] FROM unnest(compare_of) AS o (place)),
            ARRAY(SELECT compare_wanted[o.place] FROM unnest(compare_of) AS o (place)),
            write_tx,
            ARRAY(SELECT paths[w.path] FROM unnest(write_path) AS w (path)),
            ARRAY(
                SELECT substring(write_values FROM w.begins FOR w.length)
                FROM unnest(write_begin, write_length) AS w (begins, length)
            ),
            write_ends
        ) c;
        RETURN;
    END IF;

    refused := '{}';
    IF cardinality(write_path) = 0 THEN
        RETURN;
    END IF;
    INSERT INTO keelson_history (revision, path, previous, deleted, value)
    SELECT base + w.at, paths[w.path], abs(held[w.path]), w.length IS NULL,
        substring(write_values FROM w.begins FOR w.length)
    FROM unnest(write_path, write_begin, write_length) WITH ORDINALITY AS w (path, begins, length, at);
    IF cardinality(write_ends) > 0 THEN
        INSERT INTO keelson_expiry (ends, path, revision)
        SELECT w.ends, paths[w.path], base + w.at
        FROM unnest(write_path, write_ends) WITH ORDINALITY AS w (path, ends, at) WHERE w.ends IS NOT NULL;
    END IF;
    UPDATE keelson_state SET revision = base + cardinality(write_path);
    -- A hint alone: whoever misses it looks by itself a little later.
    NOTIFY keelson;
END $$;
