//! Moves of an idle UE between 4G and 5G (TS 23.502 4.11.1.3).
//!
//! The UE has one context, which serves both dialects one after the other. Its keys determine
//! which: they are mapped, and its sessions follow. N26, by which an AMF and an MME pass the
//! context on, is thus a function call.

use super::security_setup::eps_algorithms;
use super::session_conversion;
use crate::amf::context::{NasSecurity, UeContext};
use crate::schedule::kind::emm::{ATTACH_REQUEST, UPDATE_REQUEST};
use crate::step::StepContext;
use vireo_types::Dialect;
use vireo_wire::nas::{GmmCause, Nas5gmmMessage, Nas5gsMessage};

/// Integrity protected, in both dialects (TS 24.501 9.3.1, TS 24.301 9.3.1).
const INTEGRITY: u8 = 1;

/// Request of a UE from the other dialect, which its present keys verify.
#[derive(Debug)]
pub struct MoveRequest<'n> {
    /// NAS COUNT of the keys, not used up.
    pub count: u32,
    /// The request without its protection.
    pub plain: &'n [u8],
}

/// Reads a request of one dialect under the keys of the other one:
///
/// - ATTACH REQUEST and TRACKING AREA UPDATE REQUEST, which a UE from 5G protects under its 5G keys
///   (TS 33.501 8.5.2);
/// - REGISTRATION REQUEST of a UE from EPS, which contains such a message under the keys of EPS (TS
///   33.501 8.2).
///
/// Returns `None` for other messages, and if the keys do not verify it.
pub fn read<'n>(security: &NasSecurity, nas: &'n [u8]) -> Option<MoveRequest<'n>> {
    match (security.dialect(), nas) {
        (Dialect::Nr, _) => {
            let plain = update_request(nas)?;
            Some(MoveRequest { count: security.verify_emm(nas).ok()?, plain })
        }
        (Dialect::Eps, [0x7e, header, ..]) => {
            let plain = match *header {
                0 => nas,
                INTEGRITY => nas.get(7..)?,
                _ => return None,
            };
            let container = contained_request(plain)?;
            update_request(&container)?;
            Some(MoveRequest { count: security.verify(&container).ok()?, plain })
        }
        _ => None,
    }
}

/// Returns the plain request of an integrity protected EMM message.
fn update_request(nas: &[u8]) -> Option<&[u8]> {
    let plain = nas.get(6..).filter(|_| nas[0] == INTEGRITY << 4 | 0x07)?;
    matches!(plain, [0x07, ATTACH_REQUEST | UPDATE_REQUEST, ..]).then_some(plain)
}

/// Returns the EMM message in a plain REGISTRATION REQUEST.
fn contained_request(plain: &[u8]) -> Option<Vec<u8>> {
    match Nas5gsMessage::decode(plain).ok()? {
        Nas5gsMessage::Gmm(_, Nas5gmmMessage::RegistrationRequest(request)) => {
            Some(request.eps_nas_message_container?.value.to_vec())
        }
        _ => None,
    }
}

/// Takes the keys of EPS into use for a UE from 5G, whose request was accepted. Its algorithms are
/// those that the network selected when it agreed on the keys of 5G.
///
/// # Errors
///
/// Returns the cause of the reject if the subscriber may not use EPS, or if UE and network have no
/// algorithms of EPS in common. The UE then keeps its keys and sessions of 5G.
pub fn arrive_in_eps(ctx: &mut StepContext<'_, '_>) -> Result<(), GmmCause> {
    let Some(security) = ctx.ue.security.as_ref().filter(|security| security.dialect() == Dialect::Nr) else {
        return Ok(());
    };
    not_allowed(ctx.ue, Dialect::Eps).map_or(Ok(()), Err)?;
    let algorithms = eps_algorithms(ctx.env.config, ctx.ue.security_capability);
    let (eia, eea) = algorithms.ok_or(GmmCause::UeSecurityCapabilitiesMismatch)?;
    ctx.ue.security = Some(security.mapped_to_eps(eia, eea));
    session_conversion::convert(ctx);
    Ok(())
}

/// Returns the cause of the reject of a UE whose subscriber is suspended or may not use this
/// dialect. The latter has the UE search for a cell of the other one (TS 24.301 5.5.1.2.5, TS
/// 24.501 5.5.1.2.5).
pub fn not_allowed(ue: &UeContext, dialect: Dialect) -> Option<GmmCause> {
    let subscription = ue.subscription.as_ref()?;
    if subscription.suspended {
        return Some(GmmCause::FiveGsServicesNotAllowed);
    }
    let only = subscription.only?;
    (only != dialect).then_some(match dialect {
        Dialect::Nr => GmmCause::N1ModeNotAllowed,
        Dialect::Eps => GmmCause::NoSuitableCellsInTrackingArea,
    })
}
