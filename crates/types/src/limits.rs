//! The bounds that keep memory and work finite whatever a peer sends. A limit that the specifications set names its
//! clause; the others are ours.

/// The largest NGAP PDU that is read: far above any real message, far below what would hurt, and within a host's large packets
/// (64 KiB) with what is said beside it.
pub const NGAP_PDU_OCTETS: usize = 63 * 1024;
/// The largest NAS message that is read (a Registration Request with every optional IE is under 1 KiB).
pub const NAS_PDU_OCTETS: usize = 8 * 1024;
/// PDU sessions of one UE (TS 24.501 9.4: identities 1 to 15).
pub const SESSIONS_PER_UE: usize = 15;
/// S-NSSAIs in an allowed NSSAI (TS 24.501 9.11.3.37).
pub const ALLOWED_SNSSAIS: usize = 8;
/// TAIs in a TAI list (TS 24.501 9.11.3.9).
pub const TAIS_PER_LIST: usize = 16;
/// The text of a DNN (TS 23.003 9.1: 100 octets as labels).
pub const DNN_OCTETS: usize = 100;
/// RAN nodes that one core keeps a record of.
pub const RAN_NODES: usize = 65_536;
/// What UE or RAN and an SMF elsewhere may say to each other of a session in one message (N1 and N2 SM information, TS 29.502
/// 6.1.6.4): both, a question and its answer are together an event of the UE, and in its context.
pub const SM_INFORMATION_OCTETS: usize = 12 * 1024;
/// What source and target of a handover may say to each other while SMFs elsewhere are asked, as it waits in the context (TS 38.413
/// 9.3.1.20 and 9.3.1.21).
pub const HANDOVER_CONTAINER_OCTETS: usize = 16 * 1024;
/// UE capability octets that one context keeps (UE Radio Capability; TS 38.331 segments at 9000).
pub const UE_CAPABILITY_OCTETS: usize = 16 * 1024;
