-- One row: the name of the store, by which a server knows another one in its place. Dumps and copies of the tables keep it.
CREATE TABLE keelson_name (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    name text NOT NULL
);
INSERT INTO keelson_name (name) VALUES (gen_random_uuid()::text);
