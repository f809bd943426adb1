//! Tunnel updates of many sessions at a constant rate.

use super::{ControlPlane, DATAGRAM, PfcpError, RESPONSE_TIME, too_long};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vireo_types::Teid;
use vireo_wire::pfcp::*;

/// Parameters of tunnel updates, as an Xn handover causes them.
#[derive(Clone, Copy, Debug)]
pub struct TunnelUpdates<'a> {
    /// SEIDs of the UPF for the sessions. The first session has the RAN TEID 1, the next one 2, and
    /// so on.
    pub seids: &'a [u64],
    /// N3 address of the RAN node.
    pub gnb: Ipv4Addr,
    pub rate: f64,
    /// Maximum number of outstanding requests.
    pub window: usize,
}

impl ControlPlane {
    /// Changes the downlink tunnel of one session after another, until `stop` is set. Returns the
    /// number of updates.
    pub fn update_tunnels(&mut self, handovers: &TunnelUpdates<'_>, stop: &AtomicBool) -> Result<u64, PfcpError> {
        let TunnelUpdates { seids, gnb, rate, window } = *handovers;
        let (began, mut buffer, mut request) = (Instant::now(), [0; DATAGRAM], vec![]);
        let (mut sent, mut answered) = (0_u64, 0_u64);
        // The receive timeout must not limit the rate.
        self.socket.set_read_timeout(Some(Duration::from_millis(1)))?;
        let mut last = Instant::now();
        while !stop.load(Ordering::Relaxed) || answered < sent {
            let due = (began.elapsed().as_secs_f64() * rate) as u64;
            while !stop.load(Ordering::Relaxed) && sent < due && sent - answered < window as u64 && !seids.is_empty() {
                let user = (sent % seids.len() as u64) as u32;
                // The eight highest bits count the updates of the session.
                let moves = (sent / seids.len() as u64 + 1) as u32;
                let teid = Teid((user + 1).wrapping_add(moves << 24));
                let sequence = self.next();
                request.clear();
                moved(teid, gnb).emit(&mut request, seids[user as usize], sequence).map_err(too_long)?;
                self.send(&request)?;
                sent += 1;
            }
            match self.receive(&mut buffer)? {
                Some(message) if message.message_type() == MessageType::SESSION_MODIFICATION_RESPONSE => {
                    let response = SessionModificationResponse::parse(&message);
                    match response {
                        Ok(response) if response.cause.is_accepted() => {}
                        other => return Err(PfcpError::Answer { session: 0, problem: format!("{other:?}") }),
                    }
                    (answered, last) = (answered + 1, Instant::now());
                }
                Some(message) => self.answer(&message)?,
                // Nothing is retransmitted: a lost request is not counted.
                None if stop.load(Ordering::Relaxed) && last.elapsed() > RESPONSE_TIME => break,
                None => {}
            }
        }
        Ok(answered)
    }
}

/// Returns a request that moves the downlink to another tunnel and ends the old one.
fn moved(teid: Teid, gnb: Ipv4Addr) -> SessionModificationRequest {
    let mut request = SessionModificationRequest::default();
    request.update_fars.push(UpdateFar {
        far_id: FarId(2),
        apply_action: None,
        update_forwarding_parameters: Some(UpdateForwardingParameters {
            outer_header_creation: Some(OuterHeaderCreation::gtpu(teid, gnb.into())),
            flags: Some(SmReqFlags::SNDEM),
            ..UpdateForwardingParameters::default()
        }),
        bar_id: None,
    });
    request
}
