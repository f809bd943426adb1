//! `vireo slice move WHO --to-upf NAME`: relocation of sessions to another UPF.
//!
//! The core relocates session by session and reports progress in its status.

use super::{UserSelector, address_of, belongs_to};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use vireo_client::Api;
use vireo_client::slices::{each_ue, relocate as request_relocation};
use vireo_config::Failure;
use vireo_ops::api::{MoveResult, SessionStatus, UeStatus};

/// Time without progress after which the command fails.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Relocates the sessions of the selected users and waits for completion. The result holds the
/// number of selected and of relocated users.
pub(super) fn relocate(api: &Api, who: &UserSelector, count: Option<usize>, upf: &str) -> Result<MoveResult, Failure> {
    if let UserSelector::Seid(_) = who {
        return Err(Failure(
            "a SEID is of one UPF: name users by SUPI, address or slice to move them to another".into(),
        ));
    }
    let mut supis = vec![];
    each_ue(api, |ue| {
        if ue.sessions.iter().any(|session| is_meant(who, ue, session)) {
            supis.push((ue.supi.clone(), ue.sessions.iter().all(|session| session.upf == upf)));
        }
        count.is_none_or(|count| supis.len() < count)
    })?;
    if supis.is_empty() {
        return Err(Failure("nobody has a session there: `vireo status` shows the sessions of a core".into()));
    }
    let users = supis.len() as u64;
    let mut left: Vec<String> = supis.into_iter().filter(|(_, there)| !there).map(|(supi, _)| supi).collect();
    let to_move = left.len();
    for supi in &left {
        if !request_relocation(api, supi, upf)? {
            return Err(Failure(format!("{supi} has gone meanwhile: look with `vireo status`")));
        }
    }
    let mut last = Instant::now();
    while !left.is_empty() && last.elapsed() < PROGRESS_TIMEOUT {
        std::thread::sleep(POLL_INTERVAL);
        let before = left.len();
        let mut still = vec![];
        each_ue(api, |ue| {
            if left.contains(&ue.supi) && ue.sessions.iter().any(|session| session.upf != upf) {
                still.push(ue.supi.clone());
            }
            true
        })?;
        left = still;
        if left.len() < before {
            last = Instant::now();
        }
    }
    let moved = to_move - left.len();
    match (moved, to_move) {
        (0, 1..) => Err(Failure(format!(
            "nobody has gone to {upf}: users who are busy, and a UPF that is not associated, refuse; see `vireo status`"
        ))),
        _ => Ok(MoveResult { users, moved: moved as u64 }),
    }
}

/// Returns true if the selector matches the session.
fn is_meant(who: &UserSelector, ue: &UeStatus, session: &SessionStatus) -> bool {
    match who {
        UserSelector::Supi(supi) => belongs_to(ue, *supi),
        UserSelector::Slice(name) => session.slice == *name,
        UserSelector::Seid(_) => false,
        UserSelector::Addresses(first, last) => {
            address_of(session).is_some_and(|address| match (first, last, address) {
                (IpAddr::V4(first), IpAddr::V4(last), IpAddr::V4(own)) => (*first..=*last).contains(&own),
                (IpAddr::V6(first), IpAddr::V6(last), IpAddr::V6(own)) => {
                    let prefix = |address: &std::net::Ipv6Addr| address.to_bits() >> 64;
                    (prefix(first)..=prefix(last)).contains(&prefix(&own))
                }
                _ => false,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_meant_by_supi_address_or_slice() {
        let session = SessionStatus { ipv4: Some("10.45.0.7".into()), slice: "phones".into(), ..Default::default() };
        let ue = UeStatus { supi: "imsi-999700000000001".into(), ..Default::default() };
        let meant = |who: &str| is_meant(&who.parse().unwrap(), &ue, &session);
        for yes in ["imsi-999700000000001", "10.45.0.7", "10.45.0.0/24", "10.45.0.1-10.45.0.9", "phones"] {
            assert!(meant(yes), "{yes}");
        }
        for no in ["imsi-999700000000002", "10.45.0.8", "10.46.0.0/16", "fd45::/48", "meters", "seid:7"] {
            assert!(!meant(no), "{no}");
        }
        let v6 = SessionStatus { ipv6: Some("fd45:0:0:3::/64".into()), ..Default::default() };
        assert!(is_meant(&"fd45::/62".parse().unwrap(), &ue, &v6));
        assert!(!is_meant(&"fd45:0:0:8::/64".parse().unwrap(), &ue, &v6));
    }
}
