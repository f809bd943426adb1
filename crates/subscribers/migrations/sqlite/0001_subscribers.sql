-- One row for each subscriber. Keys are raw octets; the subscription is JSON, as vireo_core::subscription writes it.
CREATE TABLE subscribers (
    imsi         TEXT   NOT NULL PRIMARY KEY,
    k            BLOB   NOT NULL CHECK (length(k) = 16),
    opc          BLOB   NOT NULL CHECK (length(opc) = 16),
    amf          BLOB   NOT NULL CHECK (length(amf) = 2),
    sqn_offset   BIGINT NOT NULL DEFAULT 0,
    static_ipv4  TEXT,
    subscription TEXT   NOT NULL
) WITHOUT ROWID;

-- Which subscribers changed, whoever changed them: a running core drops these from its cache. The triggers keep the
-- last 16,384 changes; a core that finds a gap drops everything.
CREATE TABLE changes (
    id   INTEGER PRIMARY KEY AUTOINCREMENT,
    imsi TEXT    NOT NULL
);

CREATE TRIGGER subscriber_added AFTER INSERT ON subscribers BEGIN
    INSERT INTO changes (imsi) VALUES (NEW.imsi);
END;

CREATE TRIGGER subscriber_removed AFTER DELETE ON subscribers BEGIN
    INSERT INTO changes (imsi) VALUES (OLD.imsi);
END;

-- The SQN offset is the core's own to write and is not among these.
CREATE TRIGGER subscriber_changed AFTER UPDATE OF imsi, k, opc, amf, static_ipv4, subscription ON subscribers BEGIN
    INSERT INTO changes (imsi) VALUES (OLD.imsi);
END;

CREATE TRIGGER changes_bounded AFTER INSERT ON changes BEGIN
    DELETE FROM changes WHERE id = NEW.id - 16384;
END;

-- For each host slot (IND, TS 33.102 C.1.2) a sequence number that no vector has reached yet.
CREATE TABLE sqn_reservations (
    ind INTEGER NOT NULL PRIMARY KEY,
    seq BIGINT  NOT NULL
);
