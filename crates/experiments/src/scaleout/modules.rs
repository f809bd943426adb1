//! Modules of a UPF: their number, and how packets are distributed among them.

/// Rate of the paper's module in packets per second and direction.
pub(super) const PAPER: f64 = 250_000.0;
/// Maximum number of modules of a UPF.
pub(super) const MOST: usize = 8;

/// Distribution of packets among modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InterfaceMode {
    /// By interface: each module has separate interfaces and a separate N3 address.
    Separate,
    /// By queue: all modules share the interfaces and the address.
    Fanout,
}

impl InterfaceMode {
    pub(super) const ALL: [InterfaceMode; 2] = [InterfaceMode::Separate, InterfaceMode::Fanout];

    pub(super) fn name(self) -> &'static str {
        match self {
            InterfaceMode::Separate => "separate interfaces",
            InterfaceMode::Fanout => "fanout",
        }
    }

    pub(super) fn about(self) -> &'static str {
        match self {
            InterfaceMode::Separate => "A pair of interfaces and an N3 address for each module ([[datapath.module]]).",
            InterfaceMode::Fanout => "One pair of interfaces and one address, with a queue for each module.",
        }
    }

    pub(super) fn source(self) -> &'static str {
        match self {
            InterfaceMode::Separate => "figure 9, SR-IOV functions",
            InterfaceMode::Fanout => "figure 10, PACKET_FANOUT",
        }
    }
}

/// Returns a number of modules in words.
pub(super) fn counted(modules: usize) -> String {
    if modules == 1 { "1 module".to_owned() } else { format!("{modules} modules") }
}
