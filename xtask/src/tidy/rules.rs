//! The rules themselves, as tables. Change them here and say why in the commit.

use super::duplicates::Side;

/// Lines of a source file.
pub(super) const FILE_LINES: usize = 800;
/// Lines of a function, from its signature to its closing brace.
pub(super) const FUNCTION_LINES: usize = 100;
/// Fields of a struct.
pub(super) const STRUCT_FIELDS: usize = 20;
/// Elements of a tuple in a function's signature.
pub(super) const TUPLE_ELEMENTS: usize = 2;
/// Columns of a comment line and of a line of Markdown text.
pub(super) const WIDTH: usize = 100;
/// A field's documentation has more words than this.
pub(super) const FIELD_DOC_WORDS: usize = 3;
/// Characters of a test's name.
pub(super) const TEST_NAME: usize = 45;

/// Equal lines in files of both dialects, without comments and blank lines.
pub(super) const DUPLICATE_LINES: usize = 12;

/// Files of 5G and their counterparts of EPS. The second ones are no part of the first.
pub(super) const DIALECTS: &[(&Side, &Side)] = &[
    (&[("crates/core/src/amf/procedures/", "nr")], &[("crates/core/src/amf/procedures/", "eps")]),
    (&[("crates/core/src/amf/n2/", "")], &[("crates/core/src/amf/s1/", "")]),
    (&[("crates/core/src/amf/ran/", "")], &[("crates/core/src/amf/ran/s1", "")]),
    (&[("crates/core/src/amf/engine/", "")], &[("crates/core/src/amf/engine/emm", "")]),
    (&[("crates/core/src/smf/", "")], &[("crates/core/src/smf/esm", ""), ("crates/core/src/smf/erab", "")]),
    (&[("crates/emulator/src/gnb/", "")], &[("crates/emulator/src/enb/", "")]),
    (&[("crates/emulator/src/ue/", "")], &[("crates/emulator/src/ue/eps/", "")]),
];

/// Beginnings of test names that make a sentence of the name.
pub(super) const TEST_NAME_STARTS: &[&str] = &["who_", "what_", "a_", "an_", "the_"];

/// Parts of test names that begin a relative clause.
pub(super) const TEST_NAME_PARTS: &[&str] = &["_that_", "_who_", "_which_"];

/// Folders without Markdown of the project, besides those whose name begins with a dot.
pub(super) const MARKDOWN_SKIPPED: &[&str] = &["target", "results", "corpus", "artifacts", "node_modules"];

/// Structs that may have any number of fields: part of the path without extension (folder or file),
/// name (empty for all in that part) and reason. Arguments of a command line are exempt by their
/// derive of clap.
pub(super) const STRUCTS_EXEMPT: &[(&str, &str, &str)] = &[
    ("config", "", "configuration: one field for each key"),
    ("options", "Options", "configuration of the emulator: one field for each flag"),
    ("report", "Report", "report: one field for each key of its JSON"),
];

/// Which of the workspace's crates each may depend on; dev-dependencies count too, unless they are
/// named in [`DEV_ONLY`].
pub(super) const LAYERS: &[(&str, &[&str])] = &[
    ("vireo-types", &[]),
    ("vireo-sealing", &[]),
    ("vireo-wire", &["vireo-types"]),
    ("vireo-core", &["vireo-types", "vireo-wire"]),
    ("vireo-logging", &[]),
    ("vireo-sctp", &["vireo-types"]),
    ("vireo-store", &["vireo-types", "vireo-core", "vireo-sealing"]),
    ("vireo-datapath", &["vireo-types", "vireo-wire"]),
    ("vireo-subscribers", &["vireo-types", "vireo-wire", "vireo-core", "vireo-sealing"]),
    ("vireo-sbi", &["vireo-types"]),
    ("vireo-fabric", &["vireo-types", "vireo-core"]),
    ("vireo-n4", &["vireo-types", "vireo-wire", "vireo-core", "vireo-datapath"]),
    ("vireo-emulator", &["vireo-types", "vireo-wire", "vireo-sctp"]),
    ("vireo-traffic", &["vireo-types", "vireo-wire"]),
    (
        "vireo-ops",
        &[
            "vireo-types",
            "vireo-wire",
            "vireo-core",
            "vireo-logging",
            "vireo-fabric",
            "vireo-n4",
            "vireo-sbi",
            "vireo-sctp",
            "vireo-store",
            "vireo-datapath",
        ],
    ),
    (
        "vireo-smf",
        &[
            "vireo-types",
            "vireo-wire",
            "vireo-core",
            "vireo-fabric",
            "vireo-n4",
            "vireo-store",
            "vireo-sbi",
            "vireo-subscribers",
            "vireo-ops",
        ],
    ),
    (
        "vireo-upf",
        &["vireo-types", "vireo-wire", "vireo-core", "vireo-n4", "vireo-store", "vireo-datapath", "vireo-ops"],
    ),
    (
        "vireo-cluster",
        &["vireo-types", "vireo-wire", "vireo-core", "vireo-fabric", "vireo-sctp", "vireo-store", "vireo-ops"],
    ),
    ("vireo-controller", &["vireo-types", "vireo-core", "vireo-fabric", "vireo-sctp", "vireo-ops", "vireo-cluster"]),
    (
        "vireo-balancer",
        &[
            "vireo-types",
            "vireo-wire",
            "vireo-core",
            "vireo-fabric",
            "vireo-n4",
            "vireo-sctp",
            "vireo-ops",
            "vireo-cluster",
        ],
    ),
    (
        "vireo-amf",
        &[
            "vireo-types",
            "vireo-wire",
            "vireo-core",
            "vireo-fabric",
            "vireo-store",
            "vireo-sbi",
            "vireo-subscribers",
            "vireo-ops",
            "vireo-cluster",
        ],
    ),
    ("vireo-api", &["vireo-types", "vireo-core", "vireo-ops", "vireo-subscribers"]),
    ("vireo-simulator", &["vireo-types", "vireo-wire", "vireo-core", "vireo-emulator"]),
    ("vireo-pki", &[]),
    (
        "vireo-node",
        &[
            "vireo-types",
            "vireo-core",
            "vireo-fabric",
            "vireo-n4",
            "vireo-sctp",
            "vireo-subscribers",
            "vireo-ops",
            "vireo-api",
            "vireo-upf",
            "vireo-cluster",
            "vireo-controller",
            "vireo-balancer",
            "vireo-amf",
            "vireo-pki",
        ],
    ),
    (
        "vireo-config",
        &[
            "vireo-types",
            "vireo-wire",
            "vireo-core",
            "vireo-fabric",
            "vireo-sctp",
            "vireo-datapath",
            "vireo-sealing",
            "vireo-subscribers",
            "vireo-ops",
            "vireo-api",
            "vireo-upf",
            "vireo-cluster",
            "vireo-node",
        ],
    ),
    ("vireo-client", &["vireo-config", "vireo-ops"]),
    (
        "vireo-lab",
        &[
            "vireo-types",
            "vireo-fabric",
            "vireo-subscribers",
            "vireo-traffic",
            "vireo-pki",
            "vireo-ops",
            "vireo-upf",
            "vireo-config",
            "vireo-client",
        ],
    ),
    (
        "vireo-bench",
        &[
            "vireo-types",
            "vireo-core",
            "vireo-datapath",
            "vireo-sctp",
            "vireo-emulator",
            "vireo-traffic",
            "vireo-ops",
            "vireo-upf",
            "vireo-node",
            "vireo-config",
            "vireo-lab",
        ],
    ),
    (
        "vireo-experiments",
        &[
            "vireo-types",
            "vireo-wire",
            "vireo-core",
            "vireo-datapath",
            "vireo-emulator",
            "vireo-traffic",
            "vireo-ops",
            "vireo-simulator",
            "vireo-config",
            "vireo-client",
            "vireo-lab",
            "vireo-bench",
        ],
    ),
    (
        "vireo",
        &[
            "vireo-types",
            "vireo-core",
            "vireo-logging",
            "vireo-fabric",
            "vireo-sctp",
            "vireo-subscribers",
            "vireo-emulator",
            "vireo-traffic",
            "vireo-simulator",
            "vireo-pki",
            "vireo-ops",
            "vireo-api",
            "vireo-upf",
            "vireo-smf",
            "vireo-controller",
            "vireo-amf",
            "vireo-node",
            "vireo-config",
            "vireo-client",
            "vireo-lab",
            "vireo-bench",
            "vireo-experiments",
        ],
    ),
    ("xtask", &[]),
];

/// Further edges that tests alone may have.
pub(super) const DEV_ONLY: &[(&str, &[&str])] = &[
    ("vireo-core", &["vireo-emulator"]),
    ("vireo-fabric", &["vireo-pki"]),
    ("vireo-store", &["vireo-pki"]),
    // TLS to PostgreSQL is tested.
    ("vireo-subscribers", &["vireo-pki"]),
    ("vireo-ops", &["vireo-pki"]),
    ("vireo-api", &["vireo-sealing"]),
    ("vireo-controller", &["vireo-pki"]),
    // A fleet is tested with a controller.
    ("vireo-balancer", &["vireo-controller"]),
    ("vireo-lab", &["vireo-emulator"]),
    ("vireo", &["vireo-wire", "vireo-datapath", "vireo-sbi", "vireo-store"]),
];

/// Dependencies from outside that only the named crates of the workspace may use. (`deny.toml` says
/// the same of crates that nothing outside the workspace uses.)
pub(super) const USERS: &[(&str, &[&str])] = &[
    (
        "libc",
        &[
            "vireo-sctp",
            "vireo-store",
            "vireo-datapath",
            "vireo-fabric",
            "vireo-ops",
            "vireo-emulator",
            "vireo-traffic",
            "vireo-lab",
        ],
    ),
    (
        "tokio",
        &[
            "vireo-sbi",
            "vireo-store",
            "vireo-subscribers",
            "vireo-ops",
            "vireo-api",
            "vireo-controller",
            "vireo-lab",
            "vireo",
        ],
    ),
    ("getrandom", &["vireo-subscribers", "vireo-ops", "vireo-api", "vireo-emulator"]),
    // A build without the feature `experiment` has neither.
    ("good_lp", &["vireo-experiments"]),
    ("plotters", &["vireo-experiments"]),
    (
        "tracing",
        &[
            "vireo-logging",
            "vireo-fabric",
            "vireo-n4",
            "vireo-sctp",
            "vireo-datapath",
            "vireo-store",
            "vireo-sbi",
            "vireo-subscribers",
            "vireo-ops",
            "vireo-api",
            "vireo-upf",
            "vireo-smf",
            "vireo-cluster",
            "vireo-controller",
            "vireo-balancer",
            "vireo-amf",
            "vireo-node",
            "vireo-emulator",
            "vireo-config",
            "vireo",
        ],
    ),
];

/// Crates that are pure: no I/O, no threads, no clock, no globals, no unsafe code.
pub(super) const PURE: &[&str] = &["types", "wire", "core"];

/// Crates whose root forbids unsafe code.
pub(super) const FORBID_UNSAFE: &[&str] = &[
    "types",
    "sealing",
    "wire",
    "core",
    "logging",
    "fabric",
    "n4",
    "sbi",
    "subscribers",
    "api",
    "cluster",
    "controller",
    "balancer",
    "amf",
    "emulator",
    "simulator",
    "pki",
    "config",
    "client",
    "bench",
    "experiments",
];

/// Paths that a pure crate must not name; everything below a path is meant too.
pub(super) const IMPURE_PATHS: &[&str] = &[
    "std::thread",
    "std::fs",
    "std::io",
    "std::process",
    "std::env",
    "std::sync",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::time::UNIX_EPOCH",
    "std::net::UdpSocket",
    "std::net::TcpStream",
    "std::net::TcpListener",
    "std::net::ToSocketAddrs",
    "std::os",
    "std::cell::OnceCell",
    "std::cell::LazyCell",
    "core::sync",
    "core::cell::OnceCell",
    "tokio",
    "libc",
    "getrandom",
    "rand",
    "once_cell",
    "lazy_static",
];

/// Last words of paths that a pure crate must not name, wherever they come from. `Arc` is allowed:
/// it shares, it does not synchronise.
pub(super) const IMPURE_WORDS: &[&str] = &[
    "Mutex",
    "RwLock",
    "OnceLock",
    "LazyLock",
    "Condvar",
    "SystemTime",
    "UdpSocket",
    "TcpStream",
    "TcpListener",
    "AtomicBool",
    "AtomicU8",
    "AtomicU16",
    "AtomicU32",
    "AtomicU64",
    "AtomicUsize",
    "AtomicI32",
    "AtomicI64",
    "AtomicPtr",
];

/// What of the impure paths is allowed after all.
pub(super) const PURE_EXCEPTIONS: &[&str] = &["std::sync::Arc", "core::sync::Arc", "std::io::ErrorKind"];

/// Macros that a pure crate must not call.
pub(super) const IMPURE_MACROS: &[&str] = &["print", "println", "eprint", "eprintln", "dbg", "thread_local"];

/// Where unsafe code may be: files, or folders when they end in `/`. Each is small and does one
/// foreign call or one kind of shared memory.
pub(super) const UNSAFE_ALLOWED: &[&str] = &[
    "crates/sctp/",
    "crates/store/src/region/in_place.rs",
    "crates/store/src/region/mem.rs",
    "crates/datapath/src/",
    "crates/ops/src/sys/",
    "crates/emulator/src/sys/",
    "crates/traffic/src/sys.rs",
    "crates/traffic/src/sys/",
    "crates/traffic/src/frame_loop/",
    "crates/lab/src/netns.rs",
    "crates/lab/src/process.rs",
    "crates/lab/src/capture.rs",
];
