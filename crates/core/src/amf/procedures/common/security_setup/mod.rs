//! Identification, 5G AKA and security mode control (TS 24.501 5.4.1 to 5.4.3).
//!
//! This sub-procedure takes a UE from a claimed identity to a NAS security context in use.

mod state;

pub use state::{Awaited, SecuritySetup};

use crate::amf::context::{NasSecurity, Retry, UeSecurityCapability};
use crate::step::{Effect, Note, StepContext};
use crate::subscription::{AuthenticationError, AuthenticationInfo, AuthenticationRequest, Resync, SubscriberIdentity};
use state::SecurityStage;
use std::sync::Arc;
use vireo_types::Duration;
use vireo_wire::nas::*;
use vireo_wire::security::nas_5gs::{KSeaf, derive_kamf};
use vireo_wire::security::{
    constant_time_eq, select_ciphering_algo_with_preference, select_integrity_algo_with_preference,
};

/// ABBA of the first release of 5G (TS 33.501 A.7.1).
const ABBA: [u8; 2] = [0, 0];
/// Time limit of the request for a vector. It exceeds the limits of the subscriber service, so that
/// it only ends lost requests.
const VECTOR_LIMIT: Duration = Duration::from_secs(10);
/// Number of consecutive synchronisation failures or ngKSI clashes that are retried; the next one
/// ends the procedure (TS 24.501 5.4.1.3.7 e, f: the UE itself aborts after three).
const LIMIT: u8 = 2;

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
        let identified = matches!(identity, Some(SubscriberIdentity::Suci(_)));
        let stage = match identity {
            Some(identity) => request_vector(ctx, identity, None),
            None => request_identity(ctx),
        };
        Progress::Waiting(SecuritySetup { ue_ngksi, capability, identified, repeats: 0, stage })
    }

    /// Handles IDENTITY RESPONSE.
    pub fn on_identity(mut self, ctx: &mut StepContext<'_, '_>, response: &NasIdentityResponse) -> Progress {
        if !matches!(self.stage, SecurityStage::Identity(_)) {
            ctx.on_unexpected_message();
            return Progress::Waiting(self);
        }
        if response.mobile_identity.as_suci().is_none() {
            return unidentified(ctx, "identity-not-suci");
        }
        self.identified = true;
        self.stage = request_vector(ctx, SubscriberIdentity::Suci(response.mobile_identity.value.to_vec()), None);
        Progress::Waiting(self)
    }

    /// Handles the response of the subscriber service.
    pub fn on_vector(
        mut self,
        ctx: &mut StepContext<'_, '_>,
        answer: Result<AuthenticationInfo, AuthenticationError>,
    ) -> Progress {
        if !matches!(self.stage, SecurityStage::Vector { .. }) {
            return Progress::Waiting(self);
        }
        let info = match answer {
            Ok(info) => Box::new(info),
            Err(AuthenticationError::Unavailable) => return Progress::Rejected(GmmCause::Congestion),
            Err(AuthenticationError::BadAuts) => return refuse(ctx),
            Err(AuthenticationError::UnknownSubscriber) => return Progress::Rejected(GmmCause::IllegalUe),
            Err(AuthenticationError::BadSuci) => return unidentified(ctx, "suci-not-deconcealed"),
            Err(AuthenticationError::UnknownHomeKey) => return unidentified(ctx, "suci-key-unknown"),
        };
        let in_use = ctx.ue.security.as_ref().map_or(7, |s| s.ngksi);
        let free = |k: &u8| *k != self.ue_ngksi && *k != in_use;
        let ngksi = (0..7).map(|n| (n + self.repeats) % 7).find(free).unwrap_or(0);
        let retry = Retry::start(ctx.now(), ctx.env.config.timers.t3560);
        send_challenge(ctx, &info, ngksi);
        self.stage = SecurityStage::Challenge { info, ngksi, retry };
        Progress::Waiting(self)
    }

    /// Handles AUTHENTICATION RESPONSE.
    pub fn on_response(mut self, ctx: &mut StepContext<'_, '_>, response: &NasAuthenticationResponse) -> Progress {
        let SecurityStage::Challenge { info, ngksi, .. } = &self.stage else {
            ctx.on_unexpected_message();
            return Progress::Waiting(self);
        };
        let res = response.authentication_response_parameter.as_ref().and_then(|p| p.res_star());
        if !res.is_some_and(|res| constant_time_eq(res, &info.xres_star)) {
            // TS 24.501 5.4.1.3.5: the 5G-GUTI may belong to another UE, so request the identity
            // first.
            return if self.identified { refuse(ctx) } else { self.identify(ctx) };
        }
        let supi = format!("imsi-{}", info.supi.reveal());
        let kamf = vireo_wire::security::nas_5gs::Supi::parse(&supi)
            .ok()
            .and_then(|supi| derive_kamf(&KSeaf::new(&info.kseaf), &supi, &ABBA).ok());
        let Some(kamf) = kamf else {
            return Progress::Rejected(GmmCause::ProtocolErrorUnspecified);
        };
        let security = &ctx.env.config.security;
        // The preference list never has NIA0: it is refused outside an emergency (TS 33.501 5.5.2).
        let nia = select_integrity_algo_with_preference(self.capability.ia(), &security.integrity);
        let nea = select_ciphering_algo_with_preference(self.capability.ea(), &security.ciphering);
        let (Some(nia), Some(nea)) = (nia, nea) else {
            return Progress::Rejected(GmmCause::UeSecurityCapabilitiesMismatch);
        };
        let mut pending = Box::new(NasSecurity::fresh(*ngksi, *kamf.as_octets(), nia, nea));
        ctx.ue.identity.supi = Some(info.supi);
        ctx.ue.subscription = Some(Arc::new(info.subscription.clone()));
        send_security_mode(ctx, &mut pending, self.capability);
        let retry = Retry::start(ctx.now(), ctx.env.config.timers.t3560);
        self.stage = SecurityStage::SecurityMode { pending, retry };
        Progress::Waiting(self)
    }

    /// Handles AUTHENTICATION FAILURE (TS 24.501 5.4.1.3.7).
    pub fn on_failure(mut self, ctx: &mut StepContext<'_, '_>, failure: &NasAuthenticationFailure) -> Progress {
        let SecurityStage::Challenge { info, .. } = &self.stage else {
            ctx.on_unexpected_message();
            return Progress::Waiting(self);
        };
        let supi = info.supi;
        let again = self.repeats < LIMIT;
        match failure.fgmm_cause.cause() {
            Some(GmmCause::SynchFailure) if again => {
                let auts = failure.authentication_failure_parameter.as_ref();
                let auts = auts.and_then(|p| <[u8; 14]>::try_from(&p.value[..]).ok());
                let Some(auts) = auts else { return refuse(ctx) };
                let resync = Resync { rand: info.rand, auts };
                self.repeats += 1;
                self.stage = request_vector(ctx, SubscriberIdentity::Supi(supi), Some(resync));
                Progress::Waiting(self)
            }
            Some(GmmCause::NgKsiAlreadyInUse) if again => {
                self.repeats += 1;
                self.stage = request_vector(ctx, SubscriberIdentity::Supi(supi), None);
                Progress::Waiting(self)
            }
            // MAC failure, or a USIM that refuses the vector as not for 5G: request the identity of
            // a UE that was named by its 5G-GUTI.
            Some(GmmCause::MacFailure | GmmCause::NonFiveGAuthenticationUnacceptable) if !self.identified => {
                self.identify(ctx)
            }
            _ => refuse(ctx),
        }
    }

    /// Handles SECURITY MODE COMPLETE, which was verified under the pending context.
    pub fn on_security_mode_complete(
        self,
        ctx: &mut StepContext<'_, '_>,
        complete: &NasSecurityModeComplete,
    ) -> Progress {
        let SecurityStage::SecurityMode { pending, .. } = self.stage else {
            ctx.send_status_98();
            return Progress::Waiting(self);
        };
        ctx.ue.security = Some(*pending);
        ctx.secure_exchange();
        ctx.ue.security_capability = self.capability;
        if let Some(pei) = complete.imeisv.as_ref().and_then(|i| i.as_imeisv()) {
            ctx.ue.identity.pei = pei.to_string().parse().ok().map(vireo_types::Pei);
        }
        Progress::Secured(complete.nas_message_container.as_ref().map(|c| c.value.to_vec()))
    }

    /// Handles SECURITY MODE REJECT (TS 24.501 5.4.2.5): the network keeps the context that it had
    /// and aborts.
    pub fn on_security_mode_reject(self) -> Progress {
        match self.stage {
            SecurityStage::SecurityMode { .. } => Progress::Abandoned,
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
            SecurityStage::Vector { .. } => return Progress::Rejected(GmmCause::Congestion),
            SecurityStage::Identity(retry) => (retry, timers.t3570),
            SecurityStage::Challenge { retry, .. } | SecurityStage::SecurityMode { retry, .. } => (retry, timers.t3560),
        };
        match retry.next(now, period, timers.retransmissions) {
            Some(again) => *retry = again,
            None => return Progress::Abandoned,
        }
        match &mut self.stage {
            SecurityStage::Vector { .. } => {}
            SecurityStage::Identity(_) => send_identity_request(ctx),
            SecurityStage::Challenge { info, ngksi, .. } => send_challenge(ctx, info, *ngksi),
            SecurityStage::SecurityMode { pending, .. } => send_security_mode(ctx, pending, capability),
        }
        Progress::Waiting(self)
    }

    fn identify(mut self, ctx: &mut StepContext<'_, '_>) -> Progress {
        self.stage = request_identity(ctx);
        Progress::Waiting(self)
    }
}

fn request_identity(ctx: &mut StepContext<'_, '_>) -> SecurityStage {
    send_identity_request(ctx);
    SecurityStage::Identity(Retry::start(ctx.now(), ctx.env.config.timers.t3570))
}

fn send_identity_request(ctx: &mut StepContext<'_, '_>) {
    // SUCI is type 1 (TS 24.501 table 9.11.3.3.1).
    ctx.send_early(NasIdentityRequest::new(NasFGsIdentityType::new(1)).into());
}

fn request_vector(
    ctx: &mut StepContext<'_, '_>,
    identity: SubscriberIdentity,
    resync: Option<Resync>,
) -> SecurityStage {
    let serving_network = ctx.ue.connection.map_or(ctx.env.config.plmns[0], |c| c.tai.plmn);
    ctx.effect(Effect::Authenticate(AuthenticationRequest { identity, serving_network, resync }));
    SecurityStage::Vector { deadline: ctx.now() + VECTOR_LIMIT }
}

fn send_challenge(ctx: &mut StepContext<'_, '_>, info: &AuthenticationInfo, ngksi: u8) {
    let request = NasAuthenticationRequest::new(NasKeySetIdentifier::new(ngksi), NasAbba::new(ABBA.to_vec()))
        .with_authentication_parameter_rand(NasAuthenticationParameterRand::from_rand(info.rand))
        .with_authentication_parameter_autn(NasAuthenticationParameterAutn::from_autn(info.autn));
    ctx.send_early(request.into());
}

fn send_security_mode(ctx: &mut StepContext<'_, '_>, pending: &mut NasSecurity, capability: UeSecurityCapability) {
    let algorithms = NasSecurityAlgorithms::new(pending.ciphering << 4 | pending.integrity);
    let command = NasSecurityModeCommand::new(
        algorithms,
        NasKeySetIdentifier::new(pending.ngksi),
        NasUeSecurityCapability::new(capability.as_slice().to_vec()),
    )
    .with_imeisv_request(NasImeisvRequest::new(1))
    // The UE repeats its complete initial message under the new keys, which reveals alterations in
    // transit (TS 33.501 6.4.6). Requesting this always costs a few octets and avoids a condition.
    .with_additional_5g_security_information(NasAdditional5gSecurityInformation::from_flags(true, false));
    ctx.send_new_context(pending, command.into());
}

/// Rejects a UE whose identity the network cannot determine, with #9. This deviates from TS 24.501
/// 5.5.1.2.5: #3 would lock every SIM until it is switched off, because an operator has
/// misconfigured a home network key.
fn unidentified(ctx: &mut StepContext<'_, '_>, fault: &'static str) -> Progress {
    ctx.note(Note::fault(fault));
    Progress::Rejected(GmmCause::UeIdentityCannotBeDerivedByTheNetwork)
}

fn refuse(ctx: &mut StepContext<'_, '_>) -> Progress {
    ctx.send_early(NasAuthenticationReject::new().into());
    Progress::Refused
}
