-- K and OPc are sealed (AES-256-GCM): `secret` holds both, sealed for their IMSI. What was stored in clear is moved over
-- and overwritten by the release that runs this, which has the key.

DROP TRIGGER subscriber_added;
DROP TRIGGER subscriber_removed;
DROP TRIGGER subscriber_changed;
ALTER TABLE subscribers RENAME TO subscribers_in_clear;

CREATE TABLE subscribers (
    imsi         TEXT   NOT NULL PRIMARY KEY,
    secret       BLOB   NOT NULL,
    amf          BLOB   NOT NULL CHECK (length(amf) = 2),
    sqn_offset   BIGINT NOT NULL DEFAULT 0,
    static_ipv4  TEXT,
    subscription TEXT   NOT NULL
) WITHOUT ROWID;

CREATE TRIGGER subscriber_added AFTER INSERT ON subscribers BEGIN
    INSERT INTO changes (imsi) VALUES (NEW.imsi);
END;

CREATE TRIGGER subscriber_removed AFTER DELETE ON subscribers BEGIN
    INSERT INTO changes (imsi) VALUES (OLD.imsi);
END;

-- Neither the SQN offset, which is the core's own to write, nor sealing K and OPc with another key is a change.
CREATE TRIGGER subscriber_changed AFTER UPDATE OF imsi, amf, static_ipv4, subscription ON subscribers BEGIN
    INSERT INTO changes (imsi) VALUES (OLD.imsi);
END;

-- What only the right key opens: octets that are known, sealed.
CREATE TABLE sealing (
    id    INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    proof BLOB    NOT NULL
);
