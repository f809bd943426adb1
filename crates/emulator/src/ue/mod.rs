//! UE as a pure state machine over NAS (TS 24.501).
//!
//! The UE has no gNB, socket, clock or scenario. The caller passes commands and downlink NAS
//! messages, and transmits the messages in [`UeOutput`]. Every deviation of the network from the
//! specification becomes an [`Event::Violation`]. A run with this UE thus checks the core, too.

mod authentication;
mod common;
mod eap;
pub use common::{Dialect, NasUe};
mod conversion;
pub mod eps;
mod mobility;
pub(crate) mod moves;
pub use mobility::Service;
pub(crate) mod nas;
mod registration;
pub(crate) use registration::sd_octets;
pub mod security;
mod session;
pub use session::SessionVariant;
pub(crate) use session::UNKNOWN_DATA_NETWORK;

use crate::usim::{Concealment, SuciFailure};
use common::Pending;
use eps::security::EpsSecurity;
use moves::{EpsOrigin, MovingUe, NrOrigin};
use security::NasSecurity;
use std::fmt;
use std::net::Ipv4Addr;
use vireo_types::{Dnn, PduSessionType, Plmn, Snssai};

/// Parameters shared by all UEs of a run.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Home and serving network.
    pub plmn: Plmn,
    /// Concealment scheme of SUCIs.
    pub concealment: Concealment,
    /// 5G-EA octet of the UE security capability (TS 24.501 9.11.3.54): 0x80 for NEA0 alone, 0xf0
    /// for all. In EPS the EEA octet of the UE network capability (TS 24.301 9.9.3.34).
    pub ciphering: u8,
    /// 5G-IA octet, or EIA octet: 0x20 for NIA2 alone, 0x70 for NIA1 to NIA3.
    pub integrity: u8,
    pub snssai: Snssai,
    /// Data network of the PDU sessions; APN of the default bearers.
    pub dnn: Dnn,
    /// True if an EPS UE names its APN in an attach, by ESM information (TS 24.301 6.6.1.2).
    pub requests_apn: bool,
    /// True if the UE supports both systems and moves between them (TS 23.501 5.17.2).
    pub interworks: bool,
    network_name: Vec<u8>,
}

impl Profile {
    /// Returns the profile of a network, with every algorithm and the null scheme.
    pub fn new(plmn: Plmn, snssai: Snssai, dnn: Dnn) -> Self {
        let network_name = plmn.serving_network_name().into_bytes();
        Profile {
            plmn,
            concealment: Concealment::Null,
            ciphering: 0xf0,
            integrity: 0x70,
            snssai,
            dnn,
            requests_apn: true,
            interworks: false,
            network_name,
        }
    }

    /// Returns the serving network name (TS 24.501 9.12.1).
    pub fn network_name(&self) -> &[u8] {
        &self.network_name
    }
}

/// Power saving that a UE requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerSaving {
    /// Power saving mode of EPS (TS 24.301 5.3.11), or MICO mode of 5G (TS 24.501 5.3.6), with an
    /// active time of [`PowerSaving::ACTIVE_S`].
    Mode,
    /// Extended DRX (TS 24.301 5.3.12, TS 24.501 5.3.16) with the shortest cycle that has a paging
    /// time window: 10.24 s in EPS, 20.48 s in NR.
    ExtendedDrx,
}

impl PowerSaving {
    /// Active time (T3324) in seconds.
    pub const ACTIVE_S: u64 = 2;
}

/// Identity and kind of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// Initial, as after power on with an empty USIM memory: SUCI and no security context.
    Fresh,
    /// Initial, with the 5G-GUTI and the security context if available, else with the SUCI.
    Initial,
    /// Initial, with a 5G-GUTI that the network has never assigned and without a security context.
    UnknownGuti,
    Mobility,
    Periodic,
    /// As [`Registration::Periodic`], with a follow-on request (5G only).
    PeriodicFollowOn,
    /// As [`Registration::Fresh`], without PDN connection (EPS only).
    WithoutPdn,
    /// As [`Registration::Fresh`], with the packets of the UE over NAS (EPS only): the UE prefers
    /// control plane CIoT EPS optimisation.
    OverNas,
    /// As [`Registration::Fresh`], for emergency services alone.
    Emergency,
    /// As [`Registration::Fresh`]; the default bearer must have the address that it had after the
    /// earlier one (EPS only).
    StaticAddress,
}

impl Registration {
    /// Returns true if it updates an existing registration.
    pub(crate) fn is_update(self) -> bool {
        matches!(self, Registration::Mobility | Registration::Periodic | Registration::PeriodicFollowOn)
    }
}

/// Fault of the UE at its next authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The UE answers a genuine challenge with MAC failure (#20), or AKA'-Authentication-Reject.
    MacFailure,
    /// The USIM is ahead of the network: synch failure (#21) with a genuine AUTS.
    SynchFailure,
    /// As [`Fault::SynchFailure`], at every challenge: resynchronisation does not help.
    RepeatedSynchFailure,
    /// The UE reports that the ngKSI is in use (#71).
    KeySetInUse,
    /// The UE sends a wrong RES*, or RES of EAP-AKA'.
    WrongResponse,
    /// The UE sends a wrong `AT_MAC` (EAP-AKA' only).
    WrongEapMac,
    /// The UE answers the challenge with AKA'-Client-Error (EAP-AKA' only).
    EapClientError,
    /// The UE attaches with its GUTI under a wrong MAC (EPS only). The network must authenticate it
    /// (TS 24.301 4.4.4.3).
    WrongMac,
}

/// SEQ distance between the USIM and the network for [`Fault::SynchFailure`].
const AHEAD: u32 = 1 << 16;

/// 5GMM state, as far as a caller must distinguish it (TS 24.501 5.1.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MmState {
    #[default]
    Deregistered,
    Registering,
    Registered,
    ServiceRequested,
    Deregistering,
}

/// State of one PDU session (TS 24.501 6.1.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// PDU SESSION ACTIVE PENDING.
    Pending,
    Active,
    /// PDU SESSION INACTIVE PENDING.
    Releasing,
}

/// Addresses that the network assigned by NAS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address {
    pub ipv4: Option<Ipv4Addr>,
    /// Interface identifier of the IPv6 link-local address.
    pub interface: Option<[u8; 8]>,
}

/// PDU session of a UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// PDU session identity, 1 to 15.
    pub psi: u8,
    /// Procedure transaction identity in use, 0 for none.
    pub pti: u8,
    /// Requested type, then the selected one.
    pub kind: PduSessionType,
    pub state: SessionState,
    pub address: Address,
    /// EPS bearer identity of a PDU session, PSI of an EPS bearer; 0 if it cannot move to the other
    /// system.
    pub other: u8,
}

impl Session {
    /// Returns a session without identities whose establishment has begun.
    fn pending(pti: u8, kind: PduSessionType) -> Self {
        Session { psi: 0, pti, kind, state: SessionState::Pending, address: Address::default(), other: 0 }
    }
}

/// Cause sent by the network: of 5GMM (TS 24.501 9.11.3.2), of 5GSM (9.11.4.2), of EMM (TS 24.301
/// 9.9.3.9) or of ESM (9.9.4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    Mm(u8),
    Sm(u8),
    Emm(u8),
    Esm(u8),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Mm(cause) => write!(f, "5GMM cause #{cause}"),
            Cause::Sm(cause) => write!(f, "5GSM cause #{cause}"),
            Cause::Emm(cause) => write!(f, "EMM cause #{cause}"),
            Cause::Esm(cause) => write!(f, "ESM cause #{cause}"),
        }
    }
}

/// Protocol violation of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Violation {
    /// A NAS message does not decode.
    #[error("a downlink NAS message does not decode")]
    Undecodable,
    /// Message type of an unprotected message that requires protection (TS 24.501 4.4.4.2).
    #[error("a NAS message of type {0:#04x} came without protection")]
    Unprotected(u8),
    /// The MAC of a message is wrong, or its NAS COUNT was used before.
    #[error("a downlink NAS message has a wrong MAC or a NAS COUNT used before")]
    WrongMac,
    /// A protected message arrived without a security context.
    #[error("a protected NAS message came before any security context")]
    NoContext,
    /// Message type that the state does not allow.
    #[error("a NAS message of type {0:#04x} does not fit the UE's state")]
    Unexpected(u8),
    /// SECURITY MODE COMMAND: replayed capabilities differ, algorithms not offered, NIA0, or an
    /// unknown ngKSI.
    #[error("the SECURITY MODE COMMAND is not acceptable")]
    SecurityMode,
    /// Message type with a missing or inconsistent mandatory or conditional part.
    #[error("a NAS message of type {0:#04x} lacks a part that it must have")]
    Incomplete(u8),
    /// The K_gNB or K_eNB that the RAN node received differs from the UE's.
    #[error("the security key of the INITIAL CONTEXT SETUP REQUEST is not the UE's")]
    AccessKey,
}

/// Event for the caller of the UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The UE processed REGISTRATION ACCEPT and sent REGISTRATION COMPLETE where it is required.
    Registered {
        /// True if the message had a 5G-GUTI.
        guti: bool,
    },
    RegistrationRejected {
        cause: u8,
        /// T3346 in seconds, if the network sent it.
        retry_after_s: Option<u32>,
    },
    AuthenticationRejected,
    /// The UE sent AUTHENTICATION FAILURE with this cause.
    AuthenticationFailed {
        cause: u8,
    },
    /// The UE activated a security context with these algorithm numbers.
    Secured {
        ciphering: u8,
        integrity: u8,
    },
    /// A PDU session is active.
    SessionUp {
        psi: u8,
        address: Address,
    },
    /// The network refused a PDU session.
    SessionRejected {
        psi: u8,
        cause: Cause,
    },
    /// A PDU session has ended.
    SessionReleased {
        psi: u8,
    },
    /// A packet has arrived over NAS for this session, the last of [`UeOutput::packets`].
    Data {
        psi: u8,
    },
    ServiceAccepted,
    ServiceRejected {
        cause: u8,
        /// T3346 in seconds, if the network sent it.
        retry_after_s: Option<u32>,
    },
    /// The deregistration by the UE is complete.
    Deregistered,
    /// The network deregistered the UE.
    DeregisteredByNetwork {
        /// 5GMM cause, if present.
        cause: Option<u8>,
        /// True if the UE shall register again.
        reregister: bool,
    },
    /// The UE processed CONFIGURATION UPDATE COMMAND.
    ConfigurationUpdated,
    /// An accept does not grant the power saving that the UE has requested, or another.
    PowerSavingRefused,
    /// 5GMM STATUS or 5GSM STATUS arrived.
    Status(Cause),
    /// The network deviated from the specification.
    Violation(Violation),
}

/// Reason for which a command failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The UE's state does not allow the command.
    #[error("the UE is {0:?}: the command does not fit")]
    State(MmState),
    /// The SUCI could not be computed.
    #[error(transparent)]
    Suci(#[from] SuciFailure),
    /// All PDU sessions are in use, or there is no such session.
    #[error("no PDU session {0} for this command")]
    Session(u8),
    /// There is no security context or 5G-GUTI.
    #[error("the UE has no security context")]
    NoContext,
    /// A NAS message could not be encoded.
    #[error("the NAS message could not be written: {0}")]
    Encoding(String),
}

/// Uplink messages and events of one step. Reused from step to step, so that steps do not allocate.
#[derive(Debug, Default)]
pub struct UeOutput {
    octets: Vec<u8>,
    ends: Vec<usize>,
    scratch: Vec<u8>,
    pub events: Vec<Event>,
    /// Packets that have arrived over NAS.
    pub packets: Vec<Vec<u8>>,
}

impl UeOutput {
    /// Removes the content and keeps the memory.
    pub fn clear(&mut self) {
        self.octets.clear();
        self.ends.clear();
        self.events.clear();
        self.packets.clear();
    }

    /// Returns the NAS messages for the network, in order.
    pub fn messages(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.octets[start..*end])
    }

    fn plain(&mut self, message: &[u8]) {
        self.octets.extend_from_slice(message);
        self.ends.push(self.octets.len());
    }
}

/// 5G (TS 24.501), and the state that only its UE has.
#[derive(Debug, Default)]
pub struct Nr {
    /// EEA and EIA for EPS, from SECURITY MODE COMMAND (TS 24.501 9.11.3.25).
    eps_algorithms: Option<u8>,
    /// PDU session identity of the last request, if it was for an always-on PDU session.
    always_on: Option<u8>,
    /// True if the last request was for a session with the subscriber's static address.
    has_static_address: bool,
    /// Address of the UE's sessions with a static address, once it has had one.
    static_address: Option<Ipv4Addr>,
    /// PTI of a session request that another one has replaced: its answer is ignored.
    former_pti: Option<u8>,
    from_eps: Option<Box<EpsOrigin>>,
    /// True if the UE has registered for emergency services alone.
    is_emergency: bool,
    /// True if the network may not authenticate the UE by 5G AKA.
    requires_eap: bool,
    conversation: Option<Box<EapConversation>>,
}

/// EAP conversation of the authentication in progress.
#[derive(Debug)]
struct EapConversation {
    /// Last request, and the plain message with its answer.
    request: Vec<u8>,
    answer: Vec<u8>,
    /// Identifier of that request, under which the network reports the result.
    identifier: u8,
}

/// UE of 5G.
pub type Ue = NasUe<Nr>;

impl Ue {
    /// Creates a UE that comes from EPS.
    pub(crate) fn arrive(moving: MovingUe, from: EpsOrigin) -> Self {
        Ue {
            mm: MmState::Registered,
            guti: Some(moving.guti),
            is_foreign: true,
            sessions: moving.sessions,
            own: Nr { from_eps: Some(Box::new(from)), ..Nr::default() },
            ..Ue::new(moving.usim)
        }
    }

    /// Creates a UE that comes from EPS by a handover. Its connection stays secured.
    pub(crate) fn arrive_connected(moving: MovingUe, from: (NasSecurity, u8)) -> Self {
        let (security, eps_algorithms) = from;
        Ue {
            mm: MmState::Registered,
            secured: true,
            guti: Some(moving.guti),
            is_foreign: true,
            sessions: moving.sessions,
            security: Some(security),
            access_count: security::AT_HANDOVER,
            own: Nr { eps_algorithms: Some(eps_algorithms), ..Nr::default() },
            ..Ue::new(moving.usim)
        }
    }

    /// Returns what the UE takes to EPS by a handover with this value of the N1 mode to S1 mode NAS
    /// transparent container. `None` if it is not registered, or has no algorithms of EPS.
    pub(crate) fn handed_over(self, container: &[u8]) -> Option<(MovingUe, EpsSecurity)> {
        let security = self.security.filter(|_| self.mm == MmState::Registered)?;
        let [sequence] = *container else { return None };
        let keys = EpsSecurity::mapped(security.handed_to_eps(sequence)?, self.own.eps_algorithms?)?;
        Some((MovingUe::new(self.usim, self.guti?, &self.sessions), keys))
    }

    /// Returns what the UE takes to EPS. `None` if it is not idle and registered, or has no
    /// algorithms of EPS.
    pub(crate) fn departed(self) -> Option<(MovingUe, NrOrigin)> {
        let security = self.security.filter(|_| self.mm == MmState::Registered && !self.secured)?;
        let algorithms = self.own.eps_algorithms?;
        Some((MovingUe::new(self.usim, self.guti?, &self.sessions), NrOrigin { security, algorithms }))
    }

    /// Compares the key that the gNB received with the UE's K_gNB.
    pub fn check_access_key(&mut self, key: &[u8], out: &mut UeOutput) {
        self.match_access_key(key, out);
    }

    /// Handles one downlink NAS message.
    pub fn receive(&mut self, profile: &Profile, message: &[u8], out: &mut UeOutput) {
        use security::{EPD_5GMM, header};
        let violation = match message {
            [EPD_5GMM, kind, ..] if kind & 0xf == header::PLAIN => self.receive_plain(profile, message, out),
            [EPD_5GMM, kind, ..] if kind & 0xf == header::NEW_INTEGRITY => {
                self.security_mode_command(profile, message, out)
            }
            [EPD_5GMM, ..] => self.receive_protected(profile, message, out),
            _ => Err(Violation::Undecodable),
        };
        if let Err(violation) = violation {
            out.events.push(Event::Violation(violation));
        }
    }
}
