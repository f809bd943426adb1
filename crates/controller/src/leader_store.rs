//! Leader election and storage of the controller state in etcd, on its own thread.
//!
//! One controller holds the leader key, by a lease that it must renew. The state is written only
//! while it does.

use super::etcd::{Etcd, EtcdError, Lease};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vireo_core::placement::cluster::{ClusterMap, DurableState};
use vireo_sctp::Waker;

/// Lease time in seconds, after which another controller may lead without a resignation; etcd
/// grants no less.
const LEASE: u64 = 2;
/// Interval at which a standby checks whether there is a leader.
const STANDBY_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Retry interval of a request that etcd did not answer.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Version of the stored format: a state without points, which release 0.2.0 reads too.
const FORMAT: u8 = 1;
/// Version of the format in which the points of hosts follow the state.
const FORMAT_WITH_POINTS: u8 = 2;
/// Version of the format in which the points and the machines of hosts follow the state.
const FORMAT_WITH_MACHINES: u8 = 3;
/// Version of the format in which cordoned hosts follow, too.
const FORMAT_WITH_CORDONED: u8 = 4;

/// Event of the leader store.
#[derive(Debug)]
pub(super) enum LeaderEvent {
    /// This controller leads, with the stored state if there is one.
    Leads(Box<Option<DurableState>>),
    /// The state of an epoch is stored.
    Written(u64),
    /// Another controller leads, or may lead; contains the reason.
    Deposed(String),
}

/// Handle of the leader store thread.
#[derive(Debug)]
pub(super) struct LeaderStore {
    states: Option<Sender<DurableState>>,
    pub(super) events: Receiver<LeaderEvent>,
    thread: Option<JoinHandle<()>>,
}

impl LeaderStore {
    /// Starts the thread for a cluster name and a controller name; events wake `waker`.
    pub(super) fn start(etcd: Etcd, cluster: &str, name: String, waker: Waker) -> std::io::Result<Self> {
        // One state is written at a time.
        let (states, received) = bounded(4);
        let (sender, events) = bounded(16);
        let keys = (format!("vireo/{cluster}/leader"), format!("vireo/{cluster}/record"));
        let mut thread =
            LeaderStoreThread { etcd, leader: keys.0, record: keys.1, name, states: received, events: sender, waker };
        let thread = std::thread::Builder::new().name("keeper".into()).spawn(move || thread.run())?;
        Ok(LeaderStore { states: Some(states), events, thread: Some(thread) })
    }

    /// Requests that a state is stored.
    pub(super) fn write(&self, record: DurableState) {
        if let Some(states) = &self.states {
            // The thread receives all of them until it ends.
            let _ = states.send(record);
        }
    }
}

impl Drop for LeaderStore {
    fn drop(&mut self) {
        self.states = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct LeaderStoreThread {
    etcd: Etcd,
    leader: String,
    record: String,
    name: String,
    states: Receiver<DurableState>,
    events: Sender<LeaderEvent>,
    waker: Waker,
}

/// Leadership that this controller has acquired.
struct Leadership {
    lease: Lease,
    /// Creation revision of the leader key.
    since: i64,
    /// Stored state, if there is one.
    record: Option<DurableState>,
}

impl LeaderStoreThread {
    fn run(&mut self) {
        let mut is_logged = false;
        loop {
            match self.acquire_leadership() {
                Ok(Some(Leadership { lease, since, record })) => {
                    is_logged = false;
                    self.report(LeaderEvent::Leads(Box::new(record)));
                    match self.hold_leadership(lease, since) {
                        Some(cause) => self.report(LeaderEvent::Deposed(cause)),
                        None => {
                            // Orderly end: the next leader need not wait for the lease to expire.
                            let _ = self.etcd.revoke(lease);
                            return;
                        }
                    }
                }
                Ok(None) => {}
                Err(error) if !is_logged => {
                    is_logged = true;
                    tracing::warn!(%error, "controller cannot lead");
                }
                Err(_) => {}
            }
            // Nothing is written while another controller leads.
            let deadline = Instant::now() + STANDBY_POLL_INTERVAL;
            loop {
                match self.states.recv_deadline(deadline) {
                    Ok(_) => {}
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        }
    }

    fn report(&self, events: LeaderEvent) {
        // Without a controller there is no receiver.
        let _ = self.events.send(events);
        self.waker.wake();
    }

    /// Acquires leadership if there is no leader.
    fn acquire_leadership(&mut self) -> Result<Option<Leadership>, EtcdError> {
        if self.etcd.contains_key(&self.leader)? {
            return Ok(None);
        }
        let lease = self.etcd.grant(LEASE)?;
        match self.etcd.campaign(&self.leader, &self.name, lease, &self.record) {
            Ok(Some((since, value))) => {
                let record = value.map(|octets| decode_state(&octets)).transpose();
                match record {
                    Ok(record) => Ok(Some(Leadership { lease, since, record })),
                    Err(error) => {
                        let _ = self.etcd.revoke(lease);
                        Err(error)
                    }
                }
            }
            other => {
                let _ = self.etcd.revoke(lease);
                other.map(|_| None)
            }
        }
    }

    /// Leads until leadership is lost, and returns the reason; `None` if the thread must end.
    fn hold_leadership(&mut self, lease: Lease, since: i64) -> Option<String> {
        let every = lease.lasts / 4;
        let mut lease_end = Instant::now() + lease.lasts;
        let mut due = Instant::now() + every;
        let mut to_write: Option<DurableState> = None;
        loop {
            let wait = if to_write.is_some() { due.min(Instant::now() + RETRY_INTERVAL) } else { due };
            match self.states.recv_deadline(wait) {
                Ok(record) => to_write = Some(record),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
            let now = Instant::now();
            if now >= due {
                due = now + every;
                match self.etcd.keep_alive(lease) {
                    Ok(true) => lease_end = now + lease.lasts,
                    Ok(false) => return Some("its lease has ended".into()),
                    Err(error) => tracing::warn!(%error, "leader lease not renewed"),
                }
            }
            if let Some(record) = to_write.take() {
                match self.write(since, &record) {
                    Ok(true) => self.report(LeaderEvent::Written(record.map.as_ref().map_or(0, ClusterMap::epoch))),
                    Ok(false) => return Some("another controller leads".into()),
                    Err(error) => {
                        tracing::warn!(%error, "cluster map not stored; retrying");
                        to_write = Some(record);
                    }
                }
            }
            if Instant::now() >= lease_end {
                return Some("etcd has not answered for as long as its lease lasts".into());
            }
        }
    }

    fn write(&mut self, since: i64, record: &DurableState) -> Result<bool, EtcdError> {
        let octets = encode_state(record)?;
        self.etcd.put_if((&self.leader, since), &self.record, &octets)
    }
}

/// Encodes a state for storage.
///
/// # Errors
///
/// Never returns an error for a state: its parts have known lengths.
pub fn encode_state(record: &DurableState) -> Result<Vec<u8>, EtcdError> {
    let DurableState { points, machines, cordoned, .. } = record;
    let encoded = match (points.is_empty(), machines.is_empty(), cordoned.is_empty()) {
        (true, true, true) => postcard::to_extend(record, vec![FORMAT]),
        (false, true, true) => postcard::to_extend(&(record, points), vec![FORMAT_WITH_POINTS]),
        (_, false, true) => postcard::to_extend(&(record, points, machines), vec![FORMAT_WITH_MACHINES]),
        (_, _, false) => postcard::to_extend(&(record, points, machines, cordoned), vec![FORMAT_WITH_CORDONED]),
    };
    encoded.map_err(|error| EtcdError::Answer(error.to_string()))
}

/// Decodes a stored state.
///
/// # Errors
///
/// Returns an error if this release cannot decode it.
pub fn decode_state(octets: &[u8]) -> Result<DurableState, EtcdError> {
    let odd = || EtcdError::Answer("a record of the cluster that this release does not read; start it anew".into());
    match octets.split_first() {
        Some((&FORMAT, octets)) => postcard::from_bytes(octets).map_err(|_| odd()),
        Some((&FORMAT_WITH_POINTS, octets)) => {
            let (state, points) = postcard::from_bytes(octets).map_err(|_| odd())?;
            Ok(DurableState { points, ..state })
        }
        Some((&FORMAT_WITH_MACHINES, octets)) => {
            let (state, points, machines) = postcard::from_bytes(octets).map_err(|_| odd())?;
            Ok(DurableState { points, machines, ..state })
        }
        Some((&FORMAT_WITH_CORDONED, octets)) => {
            let (state, points, machines, cordoned) = postcard::from_bytes(octets).map_err(|_| odd())?;
            Ok(DurableState { points, machines, cordoned, ..state })
        }
        _ => Err(odd()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_core::placement::balance::HostId;
    use vireo_core::placement::cluster::{MachineLabel, Secrets};

    #[test]
    fn state_of_each_format_is_read() {
        let state = DurableState::new(Secrets { tmsi_key: [7; 16], recovery: 9 }, None);
        let octets = encode_state(&state).unwrap();
        // As release 0.2.0 encodes it.
        assert_eq!(octets, [&[FORMAT][..], &[7; 16], &[9, 0]].concat());
        assert_eq!(decode_state(&octets).unwrap(), state);
        let state = DurableState { points: vec![(HostId(1), 120), (HostId(300), 200)], ..state };
        let octets = encode_state(&state).unwrap();
        assert_eq!(octets[0], FORMAT_WITH_POINTS);
        assert_eq!(decode_state(&octets).unwrap(), state);
        assert!(decode_state(&octets[..octets.len() - 1]).is_err() && decode_state(&[5, 0]).is_err());
        let machines = vec![(HostId(1), MachineLabel::try_from("rack1-a".to_owned()).unwrap())];
        for state in [DurableState { machines: machines.clone(), points: Vec::new(), ..state.clone() }, state] {
            let state = DurableState { machines: machines.clone(), ..state };
            let octets = encode_state(&state).unwrap();
            assert_eq!(octets[0], FORMAT_WITH_MACHINES);
            assert_eq!(decode_state(&octets).unwrap(), state);
            let state = DurableState { cordoned: vec![HostId(300)], machines: Vec::new(), ..state };
            let octets = encode_state(&state).unwrap();
            assert_eq!(octets[0], FORMAT_WITH_CORDONED);
            assert_eq!(decode_state(&octets).unwrap(), state);
        }
    }
}
