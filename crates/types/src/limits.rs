//! Limits of memory and work, whatever a peer sends.
//!
//! A limit of the specifications names its clause. The others are Vireo's own.

/// Maximum NGAP PDU that is read.
///
/// It is far above any real message and low enough to be harmless. With the data that accompanies
/// it, it fits into a host's large packets (80 KiB). Beside the largest UE Radio Capability it has
/// room for 8 KiB of other IEs.
pub const NGAP_PDU_OCTETS: usize = 72 * 1024;
/// Maximum NAS message that is read (a Registration Request with every optional IE is under 1 KiB).
pub const NAS_PDU_OCTETS: usize = 8 * 1024;
/// Maximum bit rate in messages to RAN nodes, in bit/s (TS 38.413 9.3.1.4, TS 36.413 9.2.1.141).
pub const BIT_RATE: u64 = 4_000_000_000_000;
/// PDU sessions of one UE (TS 24.501 9.4: identities 1 to 15).
pub const SESSIONS_PER_UE: usize = 15;
/// S-NSSAIs in an allowed NSSAI (TS 24.501 9.11.3.37).
pub const ALLOWED_SNSSAIS: usize = 8;
/// S-NSSAIs in a configured NSSAI (TS 24.501 9.11.3.37).
pub const CONFIGURED_SNSSAIS: usize = 16;
/// TAIs in a TAI list (TS 24.501 9.11.3.9).
pub const TAIS_PER_LIST: usize = 16;
/// Maximum text of a DNN (TS 23.003 9.1: 100 octets as labels).
pub const DNN_OCTETS: usize = 100;
/// Maximum N1 or N2 SM information of one message between UE or RAN and a remote SMF (TS 29.502
/// 6.1.6.4).
///
/// Both kinds, of a request and its response together, fit into one event of the UE and into its
/// context.
pub const SM_INFORMATION_OCTETS: usize = 12 * 1024;
/// Maximum transparent container between source and target of a handover (TS 38.413 9.3.1.20,
/// 9.3.1.21).
///
/// It applies while remote SMFs are queried, because the container waits in the UE context.
pub const HANDOVER_CONTAINER_OCTETS: usize = 16 * 1024;
/// Maximum UE Radio Capability of one coding (E-UTRA or NR) that one context stores.
///
/// With the NAS message and the sessions of an Initial Context Setup Request it fits into one
/// message. The radio interface has up to 16 segments of 9000 octets (TS 38.331 5.7.7), which is
/// more.
pub const UE_CAPABILITY_OCTETS: usize = 64 * 1024;
/// Maximum packet of a UE whose user data are sent over NAS. Mobile networks have a link MTU of
/// 1358 octets (TS 23.060 annex C), N6 one of 1500.
pub const USER_DATA_OCTETS: usize = 1500;
/// Maximum Information on Recommended Cells and RAN Nodes for Paging that one context stores: twice
/// that of the 16 cells and 16 nodes that it may have.
pub const RECOMMENDED_OCTETS: usize = 1024;
/// Maximum UE Radio Capability for Paging that one context stores. Each page has it.
pub const PAGING_CAPABILITY_OCTETS: usize = 1024;
