//! UE of either dialect: its state, and the NAS connection with its security context.

use super::security::{Algorithms, NextHop, Refusal, SecurityContext, header};
use super::{CommandError, Event, Fault, MmState, PowerSaving, Profile, Session, SessionState, UeOutput, Violation};
use crate::usim::Usim;
use std::fmt;
use vireo_types::Guti;
use vireo_wire::security::IntegrityAlgorithm;

/// Largest procedure transaction identity of a UE (TS 24.007 11.2.3.1a).
const LAST_PTI: u8 = 254;

/// NAS of one dialect, and the state that its UE has beside that of [`NasUe`].
pub trait Dialect: fmt::Debug + Default {
    /// NAS security context.
    type Security: SecurityContext;
    /// Key that an authentication yields: K_AMF or K_ASME.
    type Key: fmt::Debug;
    /// Answer to a challenge: RES* or RES.
    type Response: fmt::Debug;

    /// Offset of the message type in a plain message.
    const TYPE_AT: usize;
    /// Procedure transaction identity of the session in a registration, 0 for none.
    const FIRST_PTI: u8;
    /// True if PATH SWITCH REQUEST ACKNOWLEDGE can say that its key is of renewed NAS keys (TS
    /// 38.413 9.2.3.9). In EPS it has the NH of the former ones then (TS 33.401 7.2.10).
    const HAS_NEW_CONTEXT_INDICATOR: bool;

    /// Returns true for a message that is allowed without protection before secure exchange is
    /// established (TS 24.501 4.4.4.2, TS 24.301 4.4.4.2).
    fn allowed_unprotected(kind: u8) -> bool;

    /// Returns the identity by which scenarios name a session.
    fn session_identity(session: &Session) -> u8;

    /// Decodes a plain message and passes it to its procedure.
    ///
    /// # Errors
    ///
    /// Returns the deviation of the message.
    fn dispatch(
        ue: &mut NasUe<Self>,
        profile: &Profile,
        plain: &[u8],
        protected: bool,
        out: &mut UeOutput,
    ) -> Result<(), Violation>;
}

/// State that exists only during a registration or an authentication.
#[derive(Debug)]
pub(super) struct Pending<D: Dialect> {
    /// Plain request, whole: for the NAS message container (5G) or HASH_MME (EPS).
    pub(super) request: Vec<u8>,
    /// Last answered challenge and its response, for a retransmission.
    pub(super) challenge: Option<([u8; 16], D::Response)>,
    /// Key of the last answered challenge, with its key set identifier, until security mode
    /// control activates it.
    pub(super) key: Option<(D::Key, u8)>,
    /// True if that key is mapped from one of the other system.
    pub(super) is_mapped: bool,
}

impl<D: Dialect> Default for Pending<D> {
    fn default() -> Self {
        Pending { request: Vec::new(), challenge: None, key: None, is_mapped: false }
    }
}

/// One UE with its USIM, security context and sessions.
#[derive(Debug)]
pub struct NasUe<D: Dialect> {
    pub(super) usim: Usim,
    pub(super) mm: MmState,
    /// True if secure exchange of NAS messages is established on this connection (TS 24.501 4.4.4,
    /// TS 24.301 4.4.4).
    pub(super) secured: bool,
    pub(super) security: Option<D::Security>,
    /// 5G-GUTI. The EPS GUTI is mapped to it (TS 23.003 2.10.2.1).
    pub(super) guti: Option<Guti>,
    /// True if the AMFs or MMEs of this registration area have not assigned the GUTI.
    pub(super) is_foreign: bool,
    pub(super) pending: Option<Box<Pending<D>>>,
    pub(super) sessions: Vec<Session>,
    /// Last procedure transaction identity of the UE.
    pub(super) last_pti: u8,
    /// Uplink NAS COUNT from which the access key is derived.
    pub(super) access_count: u32,
    /// COUNT of the first SECURITY MODE COMPLETE, from which the access key may be derived as well.
    /// The commands answered since then were repeats of one command.
    pub(super) first_complete: Option<u32>,
    /// Last NH that a RAN node received since then.
    pub(super) hop: Option<Box<NextHop>>,
    /// Next NH of the former keys, as long as the RAN node may lack the key of the present ones.
    pub(super) former_hop: Option<Box<NextHop>>,
    pub(super) fault: Option<Fault>,
    /// Power saving of each registration, attach and update.
    pub(super) saving: Option<PowerSaving>,
    /// Extended DRX parameters that the network has granted (TS 24.008 10.5.5.32).
    pub(super) extended_drx: Option<u8>,
    /// True if the registration in progress updates an existing one.
    pub(super) updating: bool,
    pub(super) own: D,
}

impl<D: Dialect> NasUe<D> {
    /// Creates a UE that is switched off.
    pub fn new(usim: Usim) -> Self {
        NasUe {
            usim,
            mm: MmState::Deregistered,
            secured: false,
            security: None,
            guti: None,
            is_foreign: false,
            pending: None,
            sessions: Vec::new(),
            last_pti: D::FIRST_PTI,
            access_count: 0,
            first_complete: None,
            hop: None,
            former_hop: None,
            fault: None,
            saving: None,
            extended_drx: None,
            updating: false,
            own: D::default(),
        }
    }

    /// Returns the 5GMM or EMM state.
    pub fn mm(&self) -> MmState {
        self.mm
    }

    /// Returns the USIM.
    pub fn usim(&self) -> &Usim {
        &self.usim
    }

    /// Returns the 5G-GUTI, or the EPS GUTI mapped to it.
    pub fn guti(&self) -> Option<Guti> {
        self.guti
    }

    /// Returns the GUTI whose (5G-)S-TMSI the UE gives to lower layers, if it is registered in this
    /// registration or tracking area (TS 24.501 5.3.1.1, TS 24.301 5.3.1.1).
    pub fn access_guti(&self) -> Option<Guti> {
        self.guti.filter(|_| !self.is_foreign)
    }

    /// Returns the PDU sessions or EPS bearer contexts.
    pub fn sessions(&self) -> &[Session] {
        &self.sessions
    }

    /// Returns the identities of the active sessions.
    pub fn active_sessions(&self) -> impl Iterator<Item = u8> + '_ {
        self.sessions.iter().filter(|s| s.state == SessionState::Active).map(|s| s.psi)
    }

    /// Returns the security context, for tests and negative cases.
    pub fn security(&mut self) -> Option<&mut D::Security> {
        self.security.as_mut()
    }

    /// Makes the next authentication, or the next message, fail in this way.
    pub fn inject(&mut self, fault: Fault) {
        self.fault = Some(fault);
    }

    /// Makes each further registration, attach or update request power saving.
    pub fn request_saving(&mut self, saving: PowerSaving) {
        self.saving = Some(saving);
    }

    /// Returns the extended DRX parameters that the network has granted.
    pub fn extended_drx(&self) -> Option<u8> {
        self.extended_drx
    }

    /// Reports power saving that the UE has requested and that an accept does not grant.
    pub(super) fn check_saving(&self, mode: bool, extended_drx: bool, out: &mut UeOutput) {
        let is_granted = match self.saving {
            None => !mode && !extended_drx,
            Some(PowerSaving::Mode) => mode && !extended_drx,
            Some(PowerSaving::ExtendedDrx) => extended_drx && !mode,
        };
        if !is_granted {
            out.events.push(Event::PowerSavingRefused);
        }
    }

    /// Handles the release of the NG or S1 connection: the next message is an initial NAS message.
    pub fn connection_released(&mut self) {
        self.secured = false;
        self.pending = None;
        self.mm = match self.mm {
            MmState::ServiceRequested => MmState::Registered,
            // The UE stays registered and may retry (TS 24.501 5.5.1.3.7, TS 24.301 5.5.3.2.6).
            MmState::Registering if self.updating => MmState::Registered,
            MmState::Registering | MmState::Deregistering => MmState::Deregistered,
            settled => settled,
        };
        self.sessions.retain(|session| session.state == SessionState::Active);
        if self.mm == MmState::Deregistered {
            self.sessions.clear();
        }
    }

    /// Begins a session procedure. Returns its procedure transaction identity.
    ///
    /// # Errors
    ///
    /// Returns an error if the UE is not registered, or its connection not secured.
    pub(super) fn begin_transaction(&mut self) -> Result<u8, CommandError> {
        if self.mm != MmState::Registered || !self.secured {
            return Err(CommandError::State(self.mm));
        }
        self.last_pti = if self.last_pti >= LAST_PTI { 1 } else { self.last_pti + 1 };
        Ok(self.last_pti)
    }

    /// Begins the establishment of session `psi`. Returns the procedure transaction identity.
    ///
    /// # Errors
    ///
    /// Returns an error in the same cases, or if the identity is invalid or in use.
    pub(super) fn begin_session(&mut self, psi: u8) -> Result<u8, CommandError> {
        let pti = self.begin_transaction()?;
        let is_used = self.sessions.iter().any(|session| D::session_identity(session) == psi);
        match (1..=15).contains(&psi) && !is_used {
            true => Ok(pti),
            false => Err(CommandError::Session(psi)),
        }
    }

    /// Adds a session whose establishment has begun.
    pub(super) fn add_session(&mut self, session: Session) {
        self.sessions.reserve_exact(1);
        self.sessions.push(session);
    }

    /// Ends a session without signalling. The network replaces its session when the UE establishes
    /// it again.
    pub fn forget_session(&mut self, psi: u8) {
        self.sessions.retain(|session| session.psi != psi);
    }

    /// Ends locally the active sessions that the network does not have (TS 24.501 5.5.1.3.4,
    /// 5.6.1.4, TS 24.301 5.5.3.2.4).
    pub(super) fn drop_sessions(&mut self, is_active: impl Fn(u8) -> bool, out: &mut UeOutput) {
        self.sessions.retain(|session| {
            let stays = session.state != SessionState::Active || is_active(session.psi);
            if !stays {
                out.events.push(Event::SessionReleased { psi: session.psi });
            }
            stays
        });
    }

    /// Deregisters the UE without signalling; identity and keys stay.
    pub fn detach(&mut self) {
        self.connection_released();
        self.mm = MmState::Deregistered;
        self.sessions.clear();
    }

    /// Deletes identity and keys, as a severe cause requires.
    pub(super) fn forget(&mut self) {
        self.mm = MmState::Deregistered;
        self.pending = None;
        self.sessions.clear();
        (self.guti, self.security) = (None, None);
    }

    /// Begins an access: its key is derived from the COUNT of the next message.
    pub(super) fn begin_access(&mut self) {
        let next = self.security.as_ref().map_or(0, D::Security::uplink_count);
        (self.access_count, self.first_complete, self.hop) = (next, None, None);
    }

    /// Compares the key that the RAN node received with the UE's. If T3560 or T3460 expired before
    /// the answer, SECURITY MODE COMMAND arrives twice. The network then uses the first answer that
    /// it receives (TS 24.501 5.4.2.4). It derives the key from that answer's COUNT (TS 33.501
    /// 6.8.1.2.2, TS 33.401 7.2.6.2). Returns true if the keys are equal.
    pub(super) fn match_access_key(&mut self, key: &[u8], out: &mut UeOutput) -> bool {
        let mut counts = self.first_complete.unwrap_or(self.access_count)..=self.access_count;
        let is_own =
            |count: &u32| self.security.as_ref().and_then(|s| s.access_key(*count)).is_some_and(|own| own == key);
        let own = counts.find(is_own);
        match own {
            Some(count) => (self.access_count, self.first_complete, self.former_hop) = (count, None, None),
            None => out.events.push(Event::Violation(Violation::AccessKey)),
        }
        own.is_some()
    }

    /// Compares the NH that the RAN node of a handover received with the UE's NH of that chaining
    /// counter. The counter is 2 at the first handover of a connection (TS 33.501 6.9.2.3.3 note)
    /// and 0 after 7. A path switch may cross the renewal of the key.
    pub fn check_next_hop(&mut self, key: &[u8], chaining: u8, out: &mut UeOutput) {
        let last = self.hop.as_deref().copied();
        let own = self.security.as_ref().and_then(|security| security.next_hop(self.access_count, chaining, last));
        match own {
            Some(own) if own.nh == key => self.hop = Some(Box::new(own)),
            _ if self.former_hop.take().is_some_and(|former| former.is(key, chaining)) => {}
            _ => out.events.push(Event::Violation(Violation::AccessKey)),
        }
    }

    /// Protects `plain` with the current context and sends it.
    pub(super) fn send(&mut self, kind: u8, plain: &[u8], out: &mut UeOutput) -> Result<(), CommandError> {
        let security = self.security.as_mut().ok_or(CommandError::NoContext)?;
        security.protect(kind, plain, &mut out.octets).map_err(|_| CommandError::NoContext)?;
        out.ends.push(out.octets.len());
        Ok(())
    }

    /// Sends an answer, protected if secure exchange is established, else plain.
    pub(super) fn answer(&mut self, plain: &[u8], out: &mut UeOutput) -> Result<(), Violation> {
        if self.secured {
            self.send(header::CIPHERED, plain, out).map_err(|_| Violation::NoContext)
        } else {
            out.plain(plain);
            Ok(())
        }
    }

    /// Handles a message under the current context.
    pub(super) fn receive_protected(
        &mut self,
        profile: &Profile,
        message: &[u8],
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        let security = self.security.as_mut().ok_or(Violation::NoContext)?;
        let mut plain = std::mem::take(&mut out.scratch);
        plain.clear();
        let result = match security.unprotect(message, &mut plain) {
            Ok(()) => {
                self.secured = true;
                D::dispatch(self, profile, &plain, true, out)
            }
            Err(Refusal::Short) => Err(Violation::Undecodable),
            Err(Refusal::Mac | Refusal::Exhausted) => Err(Violation::WrongMac),
        };
        out.scratch = plain;
        result
    }

    /// Handles messages that are allowed without protection before secure exchange is established.
    pub(super) fn receive_plain(
        &mut self,
        profile: &Profile,
        message: &[u8],
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        let kind = message.get(D::TYPE_AT).copied().unwrap_or(0);
        if self.secured || !D::allowed_unprotected(kind) {
            return Err(Violation::Unprotected(kind));
        }
        D::dispatch(self, profile, message, false, out)
    }

    /// Verifies the MAC of a SECURITY MODE COMMAND with the context that it names: `fresh`, or the
    /// current one if it has that identity, perhaps with other algorithms. Takes the context into
    /// use. Returns true if the command activates that context or other algorithms.
    pub(super) fn activate(
        &mut self,
        fresh: Option<D::Security>,
        is_named: impl FnOnce(&D::Security) -> bool,
        algorithms: Algorithms,
        message: &[u8],
    ) -> Result<bool, Violation> {
        let mut plain = Vec::new();
        if let Some(mut security) = fresh {
            security.unprotect(message, &mut plain).map_err(|_| Violation::WrongMac)?;
            let former = self.security.replace(security).filter(|_| !D::HAS_NEW_CONTEXT_INDICATOR);
            let last = self.hop.as_deref().copied();
            let next = |former: D::Security| former.next_hop(self.access_count, NextHop::next_chaining(last), last);
            self.former_hop = former.and_then(next).map(Box::new);
            return Ok(true);
        }
        let security = self.security.as_mut().filter(|security| is_named(security)).ok_or(Violation::SecurityMode)?;
        let before = security.algorithms();
        security.reselect(algorithms.0, algorithms.1);
        if security.unprotect(message, &mut plain).is_err() {
            security.reselect(before.0, before.1);
            return Err(Violation::WrongMac);
        }
        Ok(before != algorithms)
    }

    /// Sends SECURITY MODE COMPLETE. `is_new` is true if the command activated a context or other
    /// algorithms.
    pub(super) fn complete_security_mode(
        &mut self,
        complete: &[u8],
        is_new: bool,
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        let Some(security) = &self.security else { return Err(Violation::NoContext) };
        let (ciphering, integrity) = security.algorithms();
        let first = self.first_complete.filter(|_| !is_new).unwrap_or(security.uplink_count());
        self.begin_access();
        self.first_complete = Some(first);
        self.send(header::NEW_CIPHERED, complete, out).map_err(|_| Violation::NoContext)?;
        out.events.push(Event::Secured { ciphering: ciphering as u8, integrity: integrity as u8 });
        Ok(())
    }

    /// Returns true if the UE offered the algorithms of its context. Null integrity is never
    /// accepted (no emergency services here, TS 33.501 5.5.2, TS 33.401 5.1.4.1).
    pub(super) fn has_offered(&self, p: &Profile) -> bool {
        let Some((ciphering, integrity)) = self.security.as_ref().map(D::Security::algorithms) else { return false };
        let bit = |n: u8| 0x80u8 >> n;
        p.ciphering & bit(ciphering as u8) != 0
            && p.integrity & bit(integrity as u8) != 0
            && integrity != IntegrityAlgorithm::Null
    }
}
