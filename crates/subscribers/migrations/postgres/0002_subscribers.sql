-- The schema that SQLite has at version 2. The collation "C" orders IMSIs by their digits, whatever the database's is.
CREATE TABLE subscribers (
    imsi         TEXT   COLLATE "C" NOT NULL PRIMARY KEY,
    secret       BYTEA  NOT NULL,
    amf          BYTEA  NOT NULL CHECK (octet_length(amf) = 2),
    sqn_offset   BIGINT NOT NULL DEFAULT 0,
    static_ipv4  TEXT,
    subscription TEXT   NOT NULL
);

-- Which subscribers changed, whoever changed them: running cores drop these from their caches. The trigger keeps the
-- last 16,384 changes; a core that finds a gap drops everything.
CREATE TABLE changes (
    id   BIGINT NOT NULL PRIMARY KEY,
    imsi TEXT   NOT NULL
);

-- Number of the last change. A sequence would not do: a transaction could commit a number after a higher one was read.
-- The lock of this row orders numbers like commits, and a roll-back leaves no gap.
CREATE TABLE change_counter (
    id   INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    last BIGINT  NOT NULL
);
INSERT INTO change_counter (id, last) VALUES (1, 0);

CREATE FUNCTION log_changes(imsis TEXT[]) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    newest BIGINT;
BEGIN
    IF coalesce(cardinality(imsis), 0) = 0 THEN
        RETURN;
    END IF;
    UPDATE change_counter SET last = last + cardinality(imsis) RETURNING last INTO newest;
    INSERT INTO changes (id, imsi)
        SELECT newest - cardinality(imsis) + place, imsi FROM unnest(imsis) WITH ORDINALITY AS one (imsi, place);
    DELETE FROM changes WHERE id <= newest - 16384;
END $$;

CREATE FUNCTION log_added() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    PERFORM log_changes(ARRAY(SELECT imsi FROM new_rows ORDER BY imsi));
    RETURN NULL;
END $$;

CREATE FUNCTION log_removed() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    PERFORM log_changes(ARRAY(SELECT imsi FROM old_rows ORDER BY imsi));
    RETURN NULL;
END $$;

-- Neither the SQN offset, which is the core's own to write, nor sealing K and OPc with another key is a change.
CREATE FUNCTION log_changed() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('vireo.rekey', true) = 'on' THEN
        RETURN NULL;
    END IF;
    PERFORM log_changes(ARRAY(
        SELECT o.imsi FROM old_rows o LEFT JOIN new_rows n USING (imsi)
        WHERE (o.secret, o.amf, o.static_ipv4, o.subscription)
            IS DISTINCT FROM (n.secret, n.amf, n.static_ipv4, n.subscription)
        ORDER BY o.imsi));
    RETURN NULL;
END $$;

CREATE TRIGGER subscribers_added AFTER INSERT ON subscribers
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION log_added();
CREATE TRIGGER subscribers_removed AFTER DELETE ON subscribers
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION log_removed();
CREATE TRIGGER subscribers_changed AFTER UPDATE ON subscribers
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION log_changed();

-- For each host slot (IND, TS 33.102 C.1.2) a sequence number that no vector has reached yet.
CREATE TABLE sqn_reservations (
    ind INTEGER NOT NULL PRIMARY KEY,
    seq BIGINT  NOT NULL
);

-- What only the right key opens: octets that are known, sealed.
CREATE TABLE sealing (
    id    INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    proof BYTEA   NOT NULL
);
