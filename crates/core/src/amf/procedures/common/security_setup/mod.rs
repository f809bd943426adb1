//! Identification, AKA and security mode control (TS 24.501 5.4.1 to 5.4.3; EPS: TS 24.301 5.4.2 to
//! 5.4.4). AKA of 5G is 5G AKA or EAP-AKA', as the vector of the subscriber service is.
//!
//! This sub-procedure takes a UE from a claimed identity to a NAS security context in use.

mod eap;
pub mod eps;
pub mod nr;
mod state;

pub use state::{AwaitedResponse, SecuritySetup};

use super::{context_setup, session_conversion};
use crate::amf::context::{KeySet, NasSecurity, Retry, UeContext, UeSecurityCapability};
use crate::config::CoreConfig;
use crate::step::{Effect, Kind, Note, RefusedRequest, StepContext};
use crate::subscription::{
    AuthenticationError, AuthenticationInfo, AuthenticationRequest, AuthenticationVector, Resync, SubscriberIdentity,
    Subscription, TransformedVector,
};
use eap::{EapAnswer, EapChallenge};
use state::SecurityStage;
use std::sync::Arc;
use vireo_types::{Dialect, Duration, Instant, Pei, Supi};
use vireo_wire::nas::GmmCause;
use vireo_wire::security::{
    CipheringAlgorithm, IntegrityAlgorithm, constant_time_eq, select_ciphering_algo_with_preference,
    select_integrity_algo_with_preference,
};

/// Time limit of the request for a vector. It exceeds the limits of the subscriber service, so that
/// it only ends lost requests.
const VECTOR_LIMIT: Duration = Duration::from_secs(10);
/// Number of consecutive synchronisation failures or ngKSI clashes that are retried; the next one
/// ends the procedure (TS 24.501 5.4.1.3.7 e, f: the UE itself aborts after three).
const LIMIT: u8 = 2;

/// AUTHENTICATION FAILURE of either dialect.
#[derive(Clone, Copy, Debug)]
pub struct AkaFailure {
    pub cause: FailureCause,
    /// AUTS of a synchronisation failure.
    pub auts: Option<[u8; 14]>,
}

/// Cause of an AUTHENTICATION FAILURE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCause {
    Synchronisation,
    /// The UE uses the ngKSI of the challenge already.
    KeySetInUse,
    /// MAC failure, or a USIM that refuses the vector as not for this dialect.
    Mac,
    Other,
}

/// Result of an event.
#[derive(Debug, PartialEq)]
pub enum Progress {
    /// The next event is awaited.
    Waiting(SecuritySetup),
    /// The UE has a security context in use. The value is the initial message from Security Mode
    /// Complete, if present.
    Secured(Option<Vec<u8>>),
    /// The calling procedure must be rejected with this cause.
    Rejected(GmmCause),
    /// Authentication Reject was sent: the UE failed authentication.
    Refused,
    /// The UE does not respond or has aborted: nothing is sent.
    Abandoned,
}

impl SecuritySetup {
    /// Starts the sub-procedure: with a vector request if the UE sent a usable identity, else with
    /// an Identity Request.
    pub fn start(
        ctx: &mut StepContext<'_, '_>,
        identity: Option<SubscriberIdentity>,
        ue_ngksi: u8,
        capability: UeSecurityCapability,
    ) -> Progress {
        // The network may know the IMSI of a UE from before.
        let is_known = owner(ctx.ue).is_some() && identity == known_identity(ctx.ue);
        let is_own = matches!(identity, Some(SubscriberIdentity::Suci(_) | SubscriberIdentity::Imsi(_)));
        let identified = is_own && !is_known;
        let stage = match identity {
            Some(identity) => request_vector(ctx, identity, None),
            None => request_identity(ctx),
        };
        Progress::Waiting(SecuritySetup { ue_ngksi, capability, identified, repeats: 0, stage })
    }

    /// Starts the sub-procedure for a UE from EPS, whose request its keys of EPS have verified:
    /// takes keys of 5G into use that are mapped from them (TS 33.501 8.2).
    pub fn map(ctx: &mut StepContext<'_, '_>, ue_ngksi: u8, capability: UeSecurityCapability) -> Progress {
        let algorithms = select(ctx.env.config, capability.ia(), capability.ea());
        let (Some(security), Some((nia, nea))) = (&ctx.ue.security, algorithms) else {
            return Progress::Rejected(GmmCause::UeSecurityCapabilitiesMismatch);
        };
        let stage = command(ctx, security.mapped_to_5g(nia, nea), capability, None);
        Progress::Waiting(SecuritySetup { ue_ngksi, capability, identified: false, repeats: 0, stage })
    }

    /// Handles IDENTITY RESPONSE with a SUCI or IMSI, or without either.
    pub fn on_identity(mut self, ctx: &mut StepContext<'_, '_>, identity: Option<SubscriberIdentity>) -> Progress {
        if !matches!(self.stage, SecurityStage::Identity(_)) {
            ctx.on_unexpected_message();
            return Progress::Waiting(self);
        }
        let Some(identity) = identity else {
            return match owner(ctx.ue) {
                Some(_) => other_subscriber(ctx),
                None => unidentified(ctx, "identity-not-suci"),
            };
        };
        self.identified = true;
        self.stage = request_vector(ctx, identity, None);
        Progress::Waiting(self)
    }

    /// Handles the response of the subscriber service.
    pub fn on_vector(
        mut self,
        ctx: &mut StepContext<'_, '_>,
        answer: Result<AuthenticationVector, AuthenticationError>,
    ) -> Progress {
        if !matches!(self.stage, SecurityStage::Vector { .. } | SecurityStage::EapVector { .. }) {
            return Progress::Waiting(self);
        }
        if self.names_other_subscriber(ctx.ue, &answer) {
            return other_subscriber(ctx);
        }
        let vector = match answer {
            Ok(vector) => vector,
            Err(AuthenticationError::Unavailable) => return Progress::Rejected(GmmCause::Congestion),
            Err(AuthenticationError::BadAuts) => return self.refuse(ctx, None, "AUTS does not verify"),
            Err(AuthenticationError::UnknownSubscriber) => return Progress::Rejected(GmmCause::IllegalUe),
            Err(AuthenticationError::BadSuci) => return unidentified(ctx, "suci-not-deconcealed"),
            Err(AuthenticationError::UnknownHomeKey) => return unidentified(ctx, "suci-key-unknown"),
        };
        self.stage = match vector {
            AuthenticationVector::Aka(info) => {
                let (info, ngksi) = (Box::new(info), self.free_key_set(ctx));
                send_challenge(ctx, &info, ngksi);
                SecurityStage::Challenge { info, ngksi, retry: Retry::start(ctx.now(), ctx.env.config.timers.t3560) }
            }
            AuthenticationVector::EapAkaPrime(vector) => self.challenge_by_eap(ctx, vector),
        };
        Progress::Waiting(self)
    }

    /// Returns true if an IDENTITY RESPONSE names another subscriber than that of the context, or
    /// none. It needs no protection (TS 24.501 4.4.4.3 b, TS 24.301 4.4.4.3), and the first message
    /// of the connection has verified under the keys of the context: the sender is not its UE.
    fn names_other_subscriber(
        &self,
        ue: &UeContext,
        answer: &Result<AuthenticationVector, AuthenticationError>,
    ) -> bool {
        let Some(owner) = owner(ue).filter(|_| self.identified) else { return false };
        match answer {
            Ok(vector) => vector.supi() != owner,
            Err(AuthenticationError::Unavailable | AuthenticationError::BadAuts) => false,
            // A removed subscriber is rejected as one.
            Err(
                AuthenticationError::UnknownSubscriber
                | AuthenticationError::BadSuci
                | AuthenticationError::UnknownHomeKey,
            ) => ue.subscription.is_some(),
        }
    }

    /// Sends the challenge of EAP-AKA'. It continues the conversation in progress, or begins one
    /// with an identifier that the UE cannot predict.
    fn challenge_by_eap(&self, ctx: &mut StepContext<'_, '_>, vector: TransformedVector) -> SecurityStage {
        let (ngksi, identifier) = match self.stage {
            SecurityStage::EapVector { ngksi, identifier, .. } => (ngksi, identifier.wrapping_add(1)),
            _ => (self.free_key_set(ctx), vector.rand[0]),
        };
        let challenge = Box::new(EapChallenge { vector, identifier });
        nr::send_eap_request(ctx, challenge.packet(), ngksi);
        SecurityStage::EapChallenge { challenge, ngksi, retry: Retry::start(ctx.now(), ctx.env.config.timers.t3560) }
    }

    /// Returns an ngKSI or eKSI that is not in use.
    fn free_key_set(&self, ctx: &StepContext<'_, '_>) -> u8 {
        let in_use = ctx.ue.security.as_ref().map_or(7, |s| s.key_set.identifier());
        let is_free = |k: &u8| *k != self.ue_ngksi && *k != in_use;
        (0..7).map(|n| (n + self.repeats) % 7).find(is_free).unwrap_or(0)
    }

    /// Handles AUTHENTICATION RESPONSE with this RES* or RES.
    pub fn on_response(self, ctx: &mut StepContext<'_, '_>, res: &[u8]) -> Progress {
        let SecurityStage::Challenge { info, ngksi, .. } = &self.stage else {
            ctx.on_unexpected_message();
            return Progress::Waiting(self);
        };
        let dialect = ctx.ue.dialect();
        let expected = match dialect {
            Dialect::Nr => &info.xres_star[..],
            Dialect::Eps => &info.xres_star[..AuthenticationInfo::RES_OCTETS],
        };
        if !constant_time_eq(res, expected) {
            let supi = info.supi;
            return self.mismatch(ctx, supi, "wrong RES*: check K and OPc");
        }
        let root = match dialect {
            Dialect::Nr => nr::root_key(info.supi, &info.kseaf),
            Dialect::Eps => Some(info.kseaf),
        };
        let (key_set, supi, subscription) = (KeySet::new(dialect, *ngksi), info.supi, info.subscription.clone());
        self.agree(ctx, (supi, subscription), key_set, root)
    }

    /// Handles AUTHENTICATION RESPONSE with this EAP message (TS 24.501 5.4.1.2.2).
    pub fn on_eap_response(mut self, ctx: &mut StepContext<'_, '_>, packet: &[u8]) -> Progress {
        let SecurityStage::EapChallenge { challenge, ngksi, .. } = &self.stage else {
            ctx.on_unexpected_message();
            return Progress::Waiting(self);
        };
        let EapChallenge { vector, identifier } = &**challenge;
        let supi = vector.supi;
        match challenge.evaluate(packet) {
            EapAnswer::Accepted(kseaf) => {
                let (key_set, root) = (KeySet::new(Dialect::Nr, *ngksi), nr::root_key(supi, &kseaf));
                let subscription = vector.subscription.clone();
                self.agree(ctx, (supi, subscription), key_set, root)
            }
            EapAnswer::Synchronisation(auts) if self.repeats < LIMIT => {
                let resync = Resync { rand: vector.rand, auts };
                let (ngksi, identifier) = (*ngksi, *identifier);
                self.repeats += 1;
                let deadline = send_vector_request(ctx, SubscriberIdentity::Supi(supi), Some(resync));
                self.stage = SecurityStage::EapVector { deadline, ngksi, identifier };
                Progress::Waiting(self)
            }
            EapAnswer::Synchronisation(_) => self.refuse(ctx, Some(supi), "repeated synchronisation failures"),
            EapAnswer::Mismatch(reason) => self.mismatch(ctx, supi, reason),
            EapAnswer::Refused(reason) => self.refuse(ctx, Some(supi), reason),
            EapAnswer::Discarded => {
                ctx.note(Note::fault("eap-discarded"));
                Progress::Waiting(self)
            }
        }
    }

    /// Handles a UE that is not the subscriber of the challenge. A GUTI may belong to another UE,
    /// so the identity of a UE with a GUTI is requested first (TS 24.501 5.4.1.2.2, 5.4.1.3.5, TS
    /// 24.301 5.4.2.5).
    fn mismatch(self, ctx: &mut StepContext<'_, '_>, supi: Supi, reason: &'static str) -> Progress {
        match self.identified {
            true => self.refuse(ctx, Some(supi), reason),
            false => self.identify(ctx),
        }
    }

    /// Commands a UE that has proved its identity to take the agreed keys into use.
    fn agree(
        mut self,
        ctx: &mut StepContext<'_, '_>,
        (supi, subscription): (Supi, Subscription),
        key_set: KeySet,
        root: Option<[u8; 32]>,
    ) -> Progress {
        let Some(root) = root else {
            return Progress::Rejected(GmmCause::ProtocolErrorUnspecified);
        };
        let Some((nia, nea)) = algorithms(ctx.env.config, key_set.dialect(), self.capability) else {
            return Progress::Rejected(GmmCause::UeSecurityCapabilitiesMismatch);
        };
        let pending = NasSecurity::agreed(key_set, root, nia, nea);
        ctx.ue.identity.supi = Some(supi);
        ctx.ue.subscription = Some(Arc::new(subscription));
        ctx.ue.pending.authenticate = false;
        self.stage = command(ctx, pending, self.capability, self.stage.eap_identifier());
        Progress::Waiting(self)
    }

    /// Handles AUTHENTICATION FAILURE (TS 24.501 5.4.1.3.7, TS 24.301 5.4.2.7). During EAP-AKA' it
    /// only reports an ngKSI in use: other failures are in EAP messages.
    pub fn on_failure(mut self, ctx: &mut StepContext<'_, '_>, failure: AkaFailure) -> Progress {
        let (supi, challenged, is_eap) = match &self.stage {
            SecurityStage::Challenge { info, .. } => (info.supi, info.rand, false),
            SecurityStage::EapChallenge { challenge, .. } => (challenge.vector.supi, challenge.vector.rand, true),
            _ => {
                ctx.on_unexpected_message();
                return Progress::Waiting(self);
            }
        };
        let identity = subscriber_identity(ctx.ue.dialect(), supi);
        let again = self.repeats < LIMIT;
        match failure.cause {
            FailureCause::KeySetInUse if again => {
                self.repeats += 1;
                self.stage = request_vector(ctx, identity, None);
                Progress::Waiting(self)
            }
            _ if is_eap => self.refuse(ctx, Some(supi), "authentication failure beside EAP"),
            FailureCause::Synchronisation if again => {
                let Some(auts) = failure.auts else {
                    return self.refuse(ctx, Some(supi), "synchronisation failure without AUTS");
                };
                self.repeats += 1;
                self.stage = request_vector(ctx, identity, Some(Resync { rand: challenged, auts }));
                Progress::Waiting(self)
            }
            FailureCause::Mac => self.mismatch(ctx, supi, "MAC failure: check K and OPc"),
            FailureCause::Synchronisation => self.refuse(ctx, Some(supi), "repeated synchronisation failures"),
            _ => self.refuse(ctx, Some(supi), "authentication failure"),
        }
    }

    /// Handles SECURITY MODE COMPLETE, which was verified under the pending context. `container` is
    /// the initial message in it.
    pub fn on_security_mode_complete(
        self,
        ctx: &mut StepContext<'_, '_>,
        pei: Option<Pei>,
        container: Option<Vec<u8>>,
    ) -> Progress {
        let (SecurityStage::SecurityMode { pending, .. } | SecurityStage::EapSecurityMode { pending, .. }) = self.stage
        else {
            ctx.send_status_98();
            return Progress::Waiting(self);
        };
        let mut keys = *pending;
        keys.agreed_at = match keys.key_set.is_mapped() {
            // They are as old as those from which they are mapped.
            true => ctx.ue.security.as_ref().map(|former| former.agreed_at).unwrap_or_default(),
            false if ctx.env.config.security.key_lifetime.time == Duration(0) => Instant::default(),
            false => ctx.now(),
        };
        let former = context_setup::former_hop(ctx);
        ctx.ue.security = Some(keys);
        ctx.secure_exchange();
        ctx.ue.security_capability = self.capability;
        context_setup::renew_key(ctx, former);
        session_conversion::convert(ctx);
        if pei.is_some() {
            ctx.ue.identity.pei = pei;
        }
        Progress::Secured(container)
    }

    /// Handles SECURITY MODE REJECT (TS 24.501 5.4.2.5): the network keeps the context that it had
    /// and aborts.
    pub fn on_security_mode_reject(self) -> Progress {
        match self.stage {
            SecurityStage::SecurityMode { .. } | SecurityStage::EapSecurityMode { .. } => Progress::Abandoned,
            _ => Progress::Waiting(self),
        }
    }

    /// Handles the expiry of the deadline.
    pub fn on_deadline(mut self, ctx: &mut StepContext<'_, '_>) -> Progress {
        let (now, timers) = (ctx.now(), ctx.env.config.timers);
        if self.deadline() > now {
            return Progress::Waiting(self);
        }
        let capability = self.capability;
        let (retry, period) = match &mut self.stage {
            SecurityStage::Vector { .. } | SecurityStage::EapVector { .. } => {
                return Progress::Rejected(GmmCause::Congestion);
            }
            SecurityStage::Identity(retry) => (retry, timers.t3570),
            SecurityStage::Challenge { retry, .. }
            | SecurityStage::EapChallenge { retry, .. }
            | SecurityStage::SecurityMode { retry, .. }
            | SecurityStage::EapSecurityMode { retry, .. } => (retry, timers.t3560),
        };
        match retry.next(now, period, timers.retransmissions) {
            Some(again) => *retry = again,
            None => return Progress::Abandoned,
        }
        match &mut self.stage {
            SecurityStage::Vector { .. } | SecurityStage::EapVector { .. } => {}
            SecurityStage::Identity(_) => send_identity_request(ctx),
            SecurityStage::Challenge { info, ngksi, .. } => send_challenge(ctx, info, *ngksi),
            SecurityStage::EapChallenge { challenge, ngksi, .. } => {
                nr::send_eap_request(ctx, challenge.packet(), *ngksi);
            }
            SecurityStage::SecurityMode { pending, .. } => send_security_mode(ctx, pending, capability, None),
            SecurityStage::EapSecurityMode { pending, identifier, .. } => {
                send_security_mode(ctx, pending, capability, Some(*identifier));
            }
        }
        Progress::Waiting(self)
    }

    fn identify(mut self, ctx: &mut StepContext<'_, '_>) -> Progress {
        self.stage = request_identity(ctx);
        Progress::Waiting(self)
    }

    /// Refuses a UE whose authentication has failed. `claimed` is the subscriber that it has named.
    fn refuse(self, ctx: &mut StepContext<'_, '_>, claimed: Option<Supi>, reason: &'static str) -> Progress {
        let supi = claimed.or(ctx.ue.identity.supi);
        let request = RefusedRequest { supi, procedure: Kind::Registration, cause: 0, reason: reason.into() };
        ctx.note(Note::Refused(Box::new(request)));
        match ctx.ue.dialect() {
            Dialect::Nr => nr::send_reject(ctx, self.stage.eap_identifier()),
            Dialect::Eps => eps::send_reject(ctx),
        }
        Progress::Refused
    }
}

/// Returns the identity of a subscriber under which the subscriber service knows it.
fn subscriber_identity(dialect: Dialect, supi: Supi) -> SubscriberIdentity {
    match dialect {
        Dialect::Nr => SubscriberIdentity::Supi(supi),
        Dialect::Eps => SubscriberIdentity::Imsi(supi),
    }
}

/// Returns the identity of a UE that was authenticated before.
pub fn known_identity(ue: &UeContext) -> Option<SubscriberIdentity> {
    ue.identity.supi.map(|supi| subscriber_identity(ue.dialect(), supi))
}

/// Returns true if a UE with keys is to be authenticated at its next request: the record of its
/// subscriber has changed, or its keys have reached a limit (TS 24.501 5.4.1.1).
pub fn is_due(ctx: &StepContext<'_, '_>) -> bool {
    ctx.ue.pending.authenticate || are_keys_used_up(ctx)
}

/// Returns true if the keys of the UE have reached a limit.
pub fn are_keys_used_up(ctx: &StepContext<'_, '_>) -> bool {
    let limit = ctx.env.config.security.key_lifetime;
    let is_old = |keys: &NasSecurity| limit.time > Duration(0) && ctx.now().since(keys.agreed_at) >= limit.time;
    let reaches = |keys: &NasSecurity| keys.uplink.max(keys.downlink) >= limit.nas_count;
    ctx.ue.security.as_ref().is_some_and(|keys| reaches(keys) || is_old(keys))
}

/// Selects the algorithms from the bits of the UE's capability. The preference list never has NIA0
/// or EIA0: it is refused outside an emergency (TS 33.501 5.5.2, TS 33.401 5.1.4.1).
fn select(config: &CoreConfig, integrity: u8, ciphering: u8) -> Option<(IntegrityAlgorithm, CipheringAlgorithm)> {
    let nia = select_integrity_algo_with_preference(integrity, &config.security.integrity)?;
    Some((nia, select_ciphering_algo_with_preference(ciphering, &config.security.ciphering)?))
}

/// Returns the algorithms of EPS for a UE (TS 24.501 8.2.25.5), which do not change while the UE
/// has its keys. `None` if it has none of EPS.
pub fn eps_algorithms(
    config: &CoreConfig,
    capability: UeSecurityCapability,
) -> Option<(IntegrityAlgorithm, CipheringAlgorithm)> {
    algorithms(config, Dialect::Eps, capability)
}

/// Returns the algorithms of a dialect for a UE; `None` if it has none that the network has.
pub fn algorithms(
    config: &CoreConfig,
    dialect: Dialect,
    capability: UeSecurityCapability,
) -> Option<(IntegrityAlgorithm, CipheringAlgorithm)> {
    match dialect {
        Dialect::Nr => select(config, capability.ia(), capability.ea()),
        Dialect::Eps => select(config, capability.eia(), capability.eea()),
    }
}

/// Sends the command to take a security context into use. It ends the EAP conversation of this
/// identifier.
fn command(
    ctx: &mut StepContext<'_, '_>,
    pending: NasSecurity,
    capability: UeSecurityCapability,
    eap_identifier: Option<u8>,
) -> SecurityStage {
    let mut pending = Box::new(pending);
    send_security_mode(ctx, &mut pending, capability, eap_identifier);
    let retry = Retry::start(ctx.now(), ctx.env.config.timers.t3560);
    match eap_identifier {
        None => SecurityStage::SecurityMode { pending, retry },
        Some(identifier) => SecurityStage::EapSecurityMode { pending, identifier, retry },
    }
}

fn request_identity(ctx: &mut StepContext<'_, '_>) -> SecurityStage {
    send_identity_request(ctx);
    SecurityStage::Identity(Retry::start(ctx.now(), ctx.env.config.timers.t3570))
}

fn send_identity_request(ctx: &mut StepContext<'_, '_>) {
    match ctx.ue.dialect() {
        Dialect::Nr => nr::send_identity_request(ctx),
        Dialect::Eps => eps::send_identity_request(ctx),
    }
}

fn request_vector(
    ctx: &mut StepContext<'_, '_>,
    identity: SubscriberIdentity,
    resync: Option<Resync>,
) -> SecurityStage {
    SecurityStage::Vector { deadline: send_vector_request(ctx, identity, resync) }
}

/// Requests a vector. Returns the deadline of the answer.
fn send_vector_request(ctx: &mut StepContext<'_, '_>, identity: SubscriberIdentity, resync: Option<Resync>) -> Instant {
    let serving_network = ctx.ue.connection.map_or(ctx.env.config.plmns[0], |c| c.tai.plmn);
    ctx.effect(Effect::Authenticate(AuthenticationRequest { identity, serving_network, resync }));
    ctx.now() + VECTOR_LIMIT
}

fn send_challenge(ctx: &mut StepContext<'_, '_>, info: &AuthenticationInfo, ksi: u8) {
    match ctx.ue.dialect() {
        Dialect::Nr => nr::send_challenge(ctx, info, ksi),
        Dialect::Eps => eps::send_challenge(ctx, info, ksi),
    }
}

fn send_security_mode(
    ctx: &mut StepContext<'_, '_>,
    pending: &mut NasSecurity,
    capability: UeSecurityCapability,
    eap_identifier: Option<u8>,
) {
    match pending.dialect() {
        Dialect::Nr => nr::send_security_mode(ctx, pending, capability, eap_identifier),
        Dialect::Eps => eps::send_security_mode(ctx, pending, capability),
    }
}

/// Returns the subscriber of a registered UE with keys.
fn owner(ue: &UeContext) -> Option<Supi> {
    ue.identity.supi.filter(|_| ue.security.is_some() && ue.is_registered())
}

/// Aborts the authentication of a UE in whose place another one has answered. The UE keeps its
/// keys, sessions and registration, and repeats its request on another connection.
fn other_subscriber(ctx: &mut StepContext<'_, '_>) -> Progress {
    ctx.note(Note::fault("identity-of-other-subscriber"));
    Progress::Abandoned
}

/// Rejects a UE whose identity the network cannot determine, with #9. This deviates from TS 24.501
/// 5.5.1.2.5: #3 would lock every SIM until it is switched off, because an operator has
/// misconfigured a home network key.
fn unidentified(ctx: &mut StepContext<'_, '_>, fault: &'static str) -> Progress {
    ctx.note(Note::fault(fault));
    Progress::Rejected(GmmCause::UeIdentityCannotBeDerivedByTheNetwork)
}
