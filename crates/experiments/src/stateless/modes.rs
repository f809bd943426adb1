//! Ways to store the UE state in SBA mode.

use vireo_bench::results::Configuration;

/// Kind of database server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    /// Redis without persistence on disk.
    Redis,
    /// FerretDB on PostgreSQL, with MongoDB's protocol.
    Mongodb,
}

/// A way to store the UE state.
#[derive(Debug)]
pub(super) struct Mode {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Configuration tables that select the state mode.
    pub(super) tables: &'static str,
    /// Database server that the mode requires, if any.
    pub(super) database: Option<Server>,
    /// One-way delay between the UPF and the database in milliseconds, if delayed.
    pub(super) far_ms: Option<u64>,
}

impl Mode {
    pub(super) fn configuration(&self) -> Configuration {
        Configuration { name: self.name.into(), about: self.about.into(), toml: self.tables.into() }
    }
}

pub(super) const STATEFUL: Mode = Mode {
    name: "stateful",
    about: "Each function keeps the state of UEs in its own memory.",
    tables: "[state]\npreset = \"stateful\"\n",
    database: None,
    far_ms: None,
};
pub(super) const PROCEDURAL: Mode = Mode {
    name: "procedural",
    about: "AMF and SMF load a UE's state from Redis at the first transaction of a procedure and commit it at the last, the UPF for \
            each transaction: it does not see where procedures end.",
    tables: "[state]\npreset = \"procedural\"\n",
    database: Some(Server::Redis),
    far_ms: None,
};
pub(super) const TRANSACTIONAL: Mode = Mode {
    name: "transactional",
    about: "AMF, SMF and UPF load a UE's state from Redis before each transaction and commit after it what has changed, as JSON.",
    tables: "[state]\npreset = \"transactional\"\n",
    database: Some(Server::Redis),
    far_ms: None,
};

pub(super) const SHARED: Mode = Mode {
    name: "shared",
    about: "As shared-amf-smf, and the UPF has a part of the record, too: what it answers the SMF with, that commits.",
    tables: "[state]\npreset = \"shared\"\n",
    database: Some(Server::Redis),
    far_ms: None,
};
pub(super) const SHARED_AMF_SMF: Mode = Mode {
    name: "shared-amf-smf",
    about: "As transactional, but AMF and SMF share the record of a UE: where the AMF asks the SMF, that commits for both.",
    tables: "[state]\npreset = \"shared-amf-smf\"\n",
    database: Some(Server::Redis),
    far_ms: None,
};

pub(super) const NON_BLOCKING: Mode = Mode {
    name: "non-blocking",
    about: "As transactional, but AMF and UPF go on while writers of theirs commit; who loads a UE next waits for that. The SMF waits.",
    tables: "[state]\npreset = \"non-blocking\"\n",
    database: Some(Server::Redis),
    far_ms: None,
};

pub(super) const DELETE_CREATE: Mode = Mode {
    name: "delete-create",
    about: "As transactional, but SMF and UPF take records out and put them in again instead of changing them.",
    tables: "[state]\npreset = \"delete-create\"\n",
    database: Some(Server::Redis),
    far_ms: None,
};

pub(super) const BINARY: Mode = Mode {
    name: "binary",
    about: "As transactional, but they write all of a record, as octets without names.",
    tables: "[state]\npreset = \"transactional\"\nchange = \"replace\"\nformat = \"binary\"\n",
    database: Some(Server::Redis),
    far_ms: None,
};
pub(super) const PROTOBUF: Mode = Mode {
    name: "protobuf",
    about: "As transactional, but in protocol buffers.",
    tables: "[state]\npreset = \"transactional\"\nformat = \"protobuf\"\n",
    database: Some(Server::Redis),
    far_ms: None,
};
pub(super) const PIGGYBACK: Mode = Mode {
    name: "piggyback",
    about: "As transactional, but SM contexts travel with the requests: the AMF keeps them with its own contexts, and the SMF asks no \
            database.",
    tables: "[state]\npreset = \"transactional\"\ncarry = \"piggyback\"\n",
    database: Some(Server::Redis),
    far_ms: None,
};
pub(super) const LEAN: Mode = Mode {
    name: "lean",
    about: "As piggyback, with binary records: one record of a UE is what AMF and SMF have, and the AMF alone loads and commits it.",
    tables: "[state]\npreset = \"lean\"\n",
    database: Some(Server::Redis),
    far_ms: None,
};
pub(super) const IMPLIED: Mode = Mode {
    name: "implied",
    about: "As transactional, but the SMF's first transfer is its answer to the AMF: one answer and one transaction of the AMF less.",
    tables: "[state]\npreset = \"transactional\"\nanswer = \"implied\"\n",
    database: Some(Server::Redis),
    far_ms: None,
};
pub(super) const GRPC: Mode = Mode {
    name: "grpc",
    about: "As transactional, but AMF and SMF ask each other in gRPC instead of JSON over HTTP/2.",
    tables: "[state]\npreset = \"transactional\"\n\n[sbi]\nencoding = \"grpc\"\n",
    database: Some(Server::Redis),
    far_ms: None,
};
pub(super) const SHM: Mode = Mode {
    name: "shm",
    about: "AMF, SMF and UPF commit each transaction to shared memory: the AMF to that of its workers, SMF and UPF to files that \
            outlive them.",
    tables: "[state]\npreset = \"shm\"\ndatabase = \"shm:///tmp/records\"\n",
    database: None,
    far_ms: None,
};

pub(super) const TRANSACTIONAL_MONGODB: Mode = Mode {
    name: "transactional",
    about: "AMF, SMF and UPF load a UE's state from FerretDB before each transaction and commit it after it; they set the fields \
            that have changed, as BSON.",
    tables: "[state]\npreset = \"transactional\"\ndatabase = \"mongodb://127.0.0.1:27017/\"\n",
    database: Some(Server::Mongodb),
    far_ms: None,
};
pub(super) const DELETE_CREATE_MONGODB: Mode = Mode {
    name: "delete-create",
    about: "As transactional, but SMF and UPF take records out and put them in again instead of changing them.",
    tables: "[state]\npreset = \"delete-create\"\ndatabase = \"mongodb://127.0.0.1:27017/\"\n",
    ..TRANSACTIONAL_MONGODB
};
pub(super) const LEAN_MONGODB: Mode = Mode {
    name: "lean",
    about: "SM contexts travel with the requests, and a UE's record, which the AMF alone loads and commits, is octets.",
    tables: "[state]\npreset = \"lean\"\ndatabase = \"mongodb://127.0.0.1:27017/\"\n",
    ..TRANSACTIONAL_MONGODB
};

pub(super) const NEAR_EDGE: Mode = Mode {
    name: "1 ms away",
    about: "As transactional; what goes between the UPF and the database takes 1 ms longer, each way (vireo distance).",
    far_ms: Some(1),
    ..TRANSACTIONAL
};
pub(super) const FAR_EDGE: Mode = Mode {
    name: "5 ms away",
    about: "As transactional; what goes between the UPF and the database takes 5 ms longer, each way (vireo distance).",
    far_ms: Some(5),
    ..TRANSACTIONAL
};
