//! Tunnel updates of many sessions at a constant rate.

use super::{ControlPlane, DATAGRAM, PfcpError, RESPONSE_TIME, too_long};
use std::collections::HashMap;
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
        let (began, mut buffer) = (Instant::now(), [0; DATAGRAM]);
        let (mut sent, mut answered) = (0_u64, 0_u64);
        let mut unanswered = Unanswered::default();
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
                let (sequence, mut request) = (self.next(), vec![]);
                moved(teid, gnb).emit(&mut request, seids[user as usize], sequence).map_err(too_long)?;
                self.send(&request)?;
                unanswered.requests.insert(sequence, (Instant::now(), request));
                sent += 1;
            }
            match self.receive(&mut buffer)? {
                Some(message) if message.message_type() == MessageType::SESSION_MODIFICATION_RESPONSE => {
                    let response = SessionModificationResponse::parse(&message);
                    match response {
                        Ok(response) if response.cause.is_accepted() => {}
                        other => return Err(PfcpError::Answer { session: 0, problem: format!("{other:?}") }),
                    }
                    answered += u64::from(unanswered.requests.remove(&message.sequence()).is_some());
                    last = Instant::now();
                }
                Some(message) => self.answer(&message)?,
                None if stop.load(Ordering::Relaxed) && last.elapsed() > RESPONSE_TIME => break,
                None => {}
            }
            // Without this, lost requests would fill the window.
            unanswered.overdue(Instant::now()).try_for_each(|request| self.send(request))?;
        }
        Ok(answered)
    }
}

/// Requests without a response.
#[derive(Debug, Default)]
struct Unanswered {
    /// Time of the last transmission and octets, by sequence number.
    requests: HashMap<u32, (Instant, Vec<u8>)>,
    examined: Option<Instant>,
}

impl Unanswered {
    /// Returns the requests to retransmit, examined several times within the response time.
    fn overdue(&mut self, now: Instant) -> impl Iterator<Item = &[u8]> {
        let due = self.examined.is_none_or(|at| now.saturating_duration_since(at) > RESPONSE_TIME / 10);
        if due {
            self.examined = Some(now);
        }
        let requests = self.requests.values_mut();
        requests.take_while(move |_| due).filter_map(move |(at, request)| {
            let overdue = now.saturating_duration_since(*at) > RESPONSE_TIME;
            overdue.then(|| {
                *at = now;
                &request[..]
            })
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overdue_requests_are_retransmitted_once() {
        let (now, mut unanswered) = (Instant::now(), Unanswered::default());
        unanswered.requests.insert(1, (now, vec![1]));
        unanswered.requests.insert(2, (now + RESPONSE_TIME, vec![2]));
        let at = |after: Duration| now + after;
        assert_eq!(unanswered.overdue(at(RESPONSE_TIME / 2)).count(), 0);
        let later = at(RESPONSE_TIME + RESPONSE_TIME / 5);
        assert_eq!(unanswered.overdue(later).collect::<Vec<_>>(), [&[1][..]]);
        assert_eq!(unanswered.overdue(later + RESPONSE_TIME / 5).count(), 0);
    }
}
