//! A UE as a pure state machine: NAS in, NAS and events out (TS 24.501).
//!
//! It knows no gNB, socket, clock or scenario: a caller gives it commands and downlink NAS messages and carries what
//! it puts into [`UeOutput`]. Every deviation of the network from the specification becomes an [`Event::Violation`], so a
//! run with this UE is also a check of the core it runs against.

mod authentication;
mod mobility;
pub use mobility::Service;
pub(crate) mod nas;
mod registration;
pub(crate) use registration::sd_octets;
pub mod security;
mod session;

use crate::usim::{Concealment, SuciFailure, Usim};
use security::{NasSecurity, NextHop, Refusal};
use std::fmt;
use std::net::Ipv4Addr;
use vireo_types::{Dnn, Guti, PduSessionType, Plmn, Snssai};

/// What all UEs of a run share.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The home and serving network.
    pub plmn: Plmn,
    /// How SUCIs are made.
    pub concealment: Concealment,
    /// The 5G-EA octet of the UE security capability (TS 24.501 9.11.3.54): 0x80 for NEA0 alone, 0xf0 for all.
    pub ciphering: u8,
    /// The 5G-IA octet: 0x20 for NIA2 alone, 0x70 for NIA1 to NIA3.
    pub integrity: u8,
    /// The slice that is asked for.
    pub snssai: Snssai,
    /// The data network of the PDU sessions.
    pub dnn: Dnn,
    network_name: Vec<u8>,
}

impl Profile {
    /// The profile of a network, with every algorithm and the null scheme.
    pub fn new(plmn: Plmn, snssai: Snssai, dnn: Dnn) -> Self {
        let network_name = plmn.serving_network_name().into_bytes();
        Profile { plmn, concealment: Concealment::Null, ciphering: 0xf0, integrity: 0x70, snssai, dnn, network_name }
    }

    /// Serving network name (TS 24.501 9.12.1).
    pub fn network_name(&self) -> &[u8] {
        &self.network_name
    }
}

/// Which identity and kind a registration has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// Initial, as after power on with an empty USIM memory: SUCI and no security context.
    Fresh,
    /// Initial, with the 5G-GUTI and the security context if there are any, else with the SUCI.
    Initial,
    /// Initial, with a 5G-GUTI that the network has never given and without a security context.
    UnknownGuti,
    /// Mobility registration updating.
    Mobility,
    /// Periodic registration updating.
    Periodic,
}

/// How a UE misbehaves at its next authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It answers a genuine challenge with MAC failure (#20).
    MacFailure,
    /// Its USIM is ahead of the network: synch failure (#21) with a genuine AUTS.
    SynchFailure,
    /// It says that the ngKSI is in use (#71).
    KeySetInUse,
    /// Its RES* is wrong.
    WrongResponse,
}

/// 5GMM state, as far as a caller must tell it apart (TS 24.501 5.1.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MmState {
    /// 5GMM-DEREGISTERED.
    #[default]
    Deregistered,
    /// 5GMM-REGISTERED-INITIATED.
    Registering,
    /// 5GMM-REGISTERED.
    Registered,
    /// 5GMM-SERVICE-REQUEST-INITIATED.
    ServiceRequested,
    /// 5GMM-DEREGISTERED-INITIATED.
    Deregistering,
}

/// State of one PDU session (TS 24.501 6.1.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// PDU SESSION ACTIVE PENDING.
    Pending,
    /// PDU SESSION ACTIVE.
    Active,
    /// PDU SESSION INACTIVE PENDING.
    Releasing,
}

/// The addresses that the network told in NAS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// The IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// The interface identifier of the IPv6 link-local address.
    pub interface: Option<[u8; 8]>,
}

/// One PDU session of a UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// PDU session identity, 1 to 15.
    pub psi: u8,
    /// Procedure transaction identity in use, 0 for none.
    pub pti: u8,
    /// What was asked for, then what was selected.
    pub kind: PduSessionType,
    /// Its state.
    pub state: SessionState,
    /// Its addresses, once active.
    pub address: Address,
}

/// A cause the network gave: of 5GMM (TS 24.501 9.11.3.2) or of 5GSM (9.11.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// 5GMM cause.
    Mm(u8),
    /// 5GSM cause.
    Sm(u8),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Mm(cause) => write!(f, "5GMM cause #{cause}"),
            Cause::Sm(cause) => write!(f, "5GSM cause #{cause}"),
        }
    }
}

/// What the network did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Violation {
    /// A NAS message does not decode.
    #[error("a downlink NAS message does not decode")]
    Undecodable,
    /// A message had to be protected (TS 24.501 4.4.4.2); its type.
    #[error("a NAS message of type {0:#04x} came without protection")]
    Unprotected(u8),
    /// The MAC of a message is wrong, or its NAS COUNT was used before.
    #[error("a downlink NAS message has a wrong MAC or a NAS COUNT used before")]
    WrongMac,
    /// A protected message came and there is no security context.
    #[error("a protected NAS message came before any security context")]
    NoContext,
    /// A message that the state does not allow; its type.
    #[error("a NAS message of type {0:#04x} does not fit the UE's state")]
    Unexpected(u8),
    /// SECURITY MODE COMMAND: replayed capabilities differ, algorithms not offered, NIA0, or an unknown ngKSI.
    #[error("the SECURITY MODE COMMAND is not acceptable")]
    SecurityMode,
    /// A mandatory or conditional part of a message is missing or makes no sense; the message's type.
    #[error("a NAS message of type {0:#04x} lacks a part that it must have")]
    Incomplete(u8),
    /// The K_gNB that the gNB was given is not the UE's.
    #[error("the security key of the INITIAL CONTEXT SETUP REQUEST is not the UE's K_gNB")]
    AccessKey,
}

/// What happened, for whoever drives the UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// REGISTRATION ACCEPT was taken (and REGISTRATION COMPLETE sent where it is asked for).
    Registered {
        /// A 5G-GUTI came with it.
        guti: bool,
    },
    /// REGISTRATION REJECT.
    RegistrationRejected {
        /// Why.
        cause: u8,
        /// T3346, in seconds, if the network gave it.
        retry_after_s: Option<u32>,
    },
    /// AUTHENTICATION REJECT.
    AuthenticationRejected,
    /// The UE sent AUTHENTICATION FAILURE with this cause.
    AuthenticationFailed {
        /// 5GMM cause.
        cause: u8,
    },
    /// A security context was taken into use; the algorithms' numbers.
    Secured {
        /// NEA.
        ciphering: u8,
        /// NIA.
        integrity: u8,
    },
    /// A PDU session is active.
    SessionUp {
        /// Which.
        psi: u8,
        /// Its addresses.
        address: Address,
    },
    /// A PDU session was refused.
    SessionRejected {
        /// Which.
        psi: u8,
        /// Why.
        cause: Cause,
    },
    /// A PDU session has ended.
    SessionReleased {
        /// Which.
        psi: u8,
    },
    /// SERVICE ACCEPT.
    ServiceAccepted,
    /// SERVICE REJECT.
    ServiceRejected {
        /// Why.
        cause: u8,
        /// T3346, in seconds, if the network gave it.
        retry_after_s: Option<u32>,
    },
    /// The UE's own deregistration is complete.
    Deregistered,
    /// The network deregistered the UE.
    DeregisteredByNetwork {
        /// 5GMM cause, if given.
        cause: Option<u8>,
        /// Whether the UE shall register again.
        reregister: bool,
    },
    /// CONFIGURATION UPDATE COMMAND was taken.
    ConfigurationUpdated,
    /// 5GMM STATUS or 5GSM STATUS came.
    Status(Cause),
    /// The network deviated from the specification.
    Violation(Violation),
}

/// Why a command could not be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The UE is not in a state for it.
    #[error("the UE is {0:?}: the command does not fit")]
    State(MmState),
    /// There is no SUCI.
    #[error(transparent)]
    Suci(#[from] SuciFailure),
    /// All PDU sessions are in use, or there is no such session.
    #[error("no PDU session {0} for this command")]
    Session(u8),
    /// There is no security context or 5G-GUTI.
    #[error("the UE has no security context")]
    NoContext,
    /// A NAS message could not be written.
    #[error("the NAS message could not be written: {0}")]
    Encoding(String),
}

/// The uplink messages and the events of one step. Reused from step to step, so that steps do not allocate.
#[derive(Debug, Default)]
pub struct UeOutput {
    octets: Vec<u8>,
    ends: Vec<usize>,
    scratch: Vec<u8>,
    /// What happened, in order.
    pub events: Vec<Event>,
}

impl UeOutput {
    /// Forgets everything but the memory.
    pub fn clear(&mut self) {
        self.octets.clear();
        self.ends.clear();
        self.events.clear();
    }

    /// The NAS messages for the network, in order.
    pub fn messages(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.octets[start..*end])
    }

    fn plain(&mut self, message: &[u8]) {
        self.octets.extend_from_slice(message);
        self.ends.push(self.octets.len());
    }
}

/// What lives only while a registration or an authentication runs.
#[derive(Debug, Default)]
struct Pending {
    /// The whole REGISTRATION REQUEST, for the NAS message container.
    complete: Vec<u8>,
    /// The identity that was sent, for IDENTITY RESPONSE.
    challenge: Option<([u8; 16], [u8; 16])>,
    /// K_AMF of the last challenge answered, with its ngKSI, until the security mode takes it into use.
    k_amf: Option<(vireo_wire::security::nas_5gs::KAmf, u8)>,
}

/// One UE.
#[derive(Debug)]
pub struct Ue {
    usim: Usim,
    mm: MmState,
    /// Secure exchange of NAS messages is established on this connection (TS 24.501 4.4.4).
    secured: bool,
    security: Option<NasSecurity>,
    guti: Option<Guti>,
    pending: Option<Box<Pending>>,
    sessions: Vec<Session>,
    last_pti: u8,
    /// The uplink NAS COUNT that K_gNB is derived from.
    access_count: u32,
    /// The first SECURITY MODE COMPLETE that it may be derived from as well: the commands that were answered since were
    /// repeats of one.
    first_complete: Option<u32>,
    /// The last NH that a gNB was given since then.
    hop: Option<Box<NextHop>>,
    fault: Option<Fault>,
    /// The registration under way is an update of one that there is.
    updating: bool,
}

impl Ue {
    /// A UE that is switched off.
    pub fn new(usim: Usim) -> Self {
        Ue {
            usim,
            mm: MmState::Deregistered,
            secured: false,
            security: None,
            guti: None,
            pending: None,
            sessions: Vec::new(),
            last_pti: 0,
            access_count: 0,
            first_complete: None,
            hop: None,
            fault: None,
            updating: false,
        }
    }

    /// Its 5GMM state.
    pub fn mm(&self) -> MmState {
        self.mm
    }

    /// Its USIM.
    pub fn usim(&self) -> &Usim {
        &self.usim
    }

    /// Its 5G-GUTI.
    pub fn guti(&self) -> Option<Guti> {
        self.guti
    }

    /// Its PDU sessions.
    pub fn sessions(&self) -> &[Session] {
        &self.sessions
    }

    /// Its security context, for tests and misbehaviour.
    pub fn security(&mut self) -> Option<&mut NasSecurity> {
        self.security.as_mut()
    }

    /// Makes the next authentication go wrong in this way.
    pub fn inject(&mut self, fault: Fault) {
        self.fault = Some(fault);
    }

    /// The NG connection is gone: what follows starts with an initial NAS message.
    pub fn connection_released(&mut self) {
        self.secured = false;
        self.pending = None;
        self.mm = match self.mm {
            MmState::ServiceRequested => MmState::Registered,
            // TS 24.501 5.5.1.3.7: it stays registered and may try again
            MmState::Registering if self.updating => MmState::Registered,
            MmState::Registering | MmState::Deregistering => MmState::Deregistered,
            settled => settled,
        };
        self.sessions.retain(|session| session.state == SessionState::Active);
        if self.mm == MmState::Deregistered {
            self.sessions.clear();
        }
    }

    /// Ends a session without telling the network, which replaces its own when the UE establishes it again.
    pub fn forget_session(&mut self, psi: u8) {
        self.sessions.retain(|session| session.psi != psi);
    }

    /// The UE takes itself for deregistered without telling the network; identity and keys stay.
    pub fn detach(&mut self) {
        self.connection_released();
        self.mm = MmState::Deregistered;
        self.sessions.clear();
    }

    /// Begins an access: K_gNB is derived from the COUNT that the next message takes.
    fn begin_access(&mut self) {
        let next = self.security.as_ref().map_or(0, NasSecurity::uplink_count);
        (self.access_count, self.first_complete, self.hop) = (next, None, None);
    }

    /// Compares the key that the gNB was given with the UE's own K_gNB. Of a SECURITY MODE COMMAND that came twice, because T3560
    /// expired before the answer was there, the network goes on with the first answer that it gets (TS 24.501 5.4.2.4), and
    /// derives the key from that one's COUNT (TS 33.501 6.8.1.2.2).
    pub fn check_access_key(&mut self, key: &[u8], out: &mut UeOutput) {
        let mut counts = self.first_complete.unwrap_or(self.access_count)..=self.access_count;
        let is_own = |count: &u32| self.security.as_ref().and_then(|s| s.k_gnb(*count)).is_some_and(|own| own == key);
        match counts.find(is_own) {
            Some(count) => (self.access_count, self.first_complete) = (count, None),
            None => out.events.push(Event::Violation(Violation::AccessKey)),
        }
    }

    /// Compares the NH that the gNB of a handover was given with the UE's own of that chaining counter, which is 2 at the
    /// first handover of a connection (TS 33.501 6.9.2.3.3 note) and 0 after 7.
    pub fn check_next_hop(&mut self, key: &[u8], chaining: u8, out: &mut UeOutput) {
        let last = self.hop.as_deref().copied();
        let own = self.security.as_ref().and_then(|security| security.next_hop(self.access_count, chaining, last));
        match own {
            Some(own) if own.nh == key => self.hop = Some(Box::new(own)),
            _ => out.events.push(Event::Violation(Violation::AccessKey)),
        }
    }

    /// Protects `plain` by the current context and sends it.
    fn send(&mut self, kind: u8, plain: &[u8], out: &mut UeOutput) -> Result<(), CommandError> {
        let security = self.security.as_mut().ok_or(CommandError::NoContext)?;
        security.protect(kind, plain, &mut out.octets).map_err(|_| CommandError::NoContext)?;
        out.ends.push(out.octets.len());
        Ok(())
    }

    /// Takes one downlink NAS message.
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

    fn receive_protected(&mut self, profile: &Profile, message: &[u8], out: &mut UeOutput) -> Result<(), Violation> {
        let security = self.security.as_mut().ok_or(Violation::NoContext)?;
        let mut plain = std::mem::take(&mut out.scratch);
        plain.clear();
        let result = match security.unprotect(message, &mut plain) {
            Ok(()) => {
                self.secured = true;
                self.dispatch(profile, &plain, true, out)
            }
            Err(Refusal::Short) => Err(Violation::Undecodable),
            Err(Refusal::Mac | Refusal::Exhausted) => Err(Violation::WrongMac),
        };
        out.scratch = plain;
        result
    }

    /// What may come without protection before secure exchange is established (TS 24.501 4.4.4.2).
    fn receive_plain(&mut self, profile: &Profile, message: &[u8], out: &mut UeOutput) -> Result<(), Violation> {
        let kind = message.get(2).copied().unwrap_or(0);
        if self.secured || !nas::allowed_unprotected(kind) {
            return Err(Violation::Unprotected(kind));
        }
        self.dispatch(profile, message, false, out)
    }
}
