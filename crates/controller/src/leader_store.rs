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
const STAND_BY: Duration = Duration::from_millis(250);
/// Retry interval of a request that etcd did not answer.
const AGAIN: Duration = Duration::from_millis(100);
/// Version of the stored format.
const FORMAT: u8 = 1;

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
    orders: Option<Sender<DurableState>>,
    pub(super) news: Receiver<LeaderEvent>,
    thread: Option<JoinHandle<()>>,
}

impl LeaderStore {
    /// Starts the thread for a cluster name and a controller name; events wake `waker`.
    pub(super) fn start(etcd: Etcd, cluster: &str, name: String, waker: Waker) -> std::io::Result<Self> {
        // One state is written at a time.
        let (orders, received) = bounded(4);
        let (sender, news) = bounded(16);
        let keys = (format!("vireo/{cluster}/leader"), format!("vireo/{cluster}/record"));
        let mut thread =
            LeaderStoreThread { etcd, leader: keys.0, record: keys.1, name, orders: received, news: sender, waker };
        let thread = std::thread::Builder::new().name("keeper".into()).spawn(move || thread.run())?;
        Ok(LeaderStore { orders: Some(orders), news, thread: Some(thread) })
    }

    /// Requests that a state is stored.
    pub(super) fn write(&self, record: DurableState) {
        if let Some(orders) = &self.orders {
            // The thread receives all of them until it ends.
            let _ = orders.send(record);
        }
    }
}

impl Drop for LeaderStore {
    fn drop(&mut self) {
        self.orders = None;
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
    orders: Receiver<DurableState>,
    news: Sender<LeaderEvent>,
    waker: Waker,
}

impl LeaderStoreThread {
    fn run(&mut self) {
        let mut complained = false;
        loop {
            match self.claim() {
                Ok(Some((lease, since, record))) => {
                    complained = false;
                    self.say(LeaderEvent::Leads(Box::new(record)));
                    match self.lead(lease, since) {
                        Some(why) => self.say(LeaderEvent::Deposed(why)),
                        None => {
                            // Orderly end: the next leader need not wait for the lease to expire.
                            let _ = self.etcd.revoke(lease);
                            return;
                        }
                    }
                }
                Ok(None) => {}
                Err(error) if !complained => {
                    complained = true;
                    tracing::warn!(%error, "this controller cannot lead");
                }
                Err(_) => {}
            }
            // Nothing is written while another controller leads.
            let until = Instant::now() + STAND_BY;
            loop {
                match self.orders.recv_deadline(until) {
                    Ok(_) => {}
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        }
    }

    fn say(&self, news: LeaderEvent) {
        // Without a controller there is no receiver.
        let _ = self.news.send(news);
        self.waker.wake();
    }

    /// Acquires leadership if there is no leader.
    fn claim(&mut self) -> Result<Option<(Lease, i64, Option<DurableState>)>, EtcdError> {
        if self.etcd.has(&self.leader)? {
            return Ok(None);
        }
        let lease = self.etcd.grant(LEASE)?;
        match self.etcd.campaign(&self.leader, &self.name, lease, &self.record) {
            Ok(Some((since, value))) => {
                let record = value.map(|octets| self::record(&octets)).transpose();
                match record {
                    Ok(record) => Ok(Some((lease, since, record))),
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
    fn lead(&mut self, lease: Lease, since: i64) -> Option<String> {
        let every = lease.lasts / 4;
        let mut sure_until = Instant::now() + lease.lasts;
        let mut due = Instant::now() + every;
        let mut to_write: Option<DurableState> = None;
        loop {
            let wait = if to_write.is_some() { due.min(Instant::now() + AGAIN) } else { due };
            match self.orders.recv_deadline(wait) {
                Ok(record) => to_write = Some(record),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
            let now = Instant::now();
            if now >= due {
                due = now + every;
                match self.etcd.keep_alive(lease) {
                    Ok(true) => sure_until = now + lease.lasts,
                    Ok(false) => return Some("its lease has ended".into()),
                    Err(error) => tracing::warn!(%error, "the lease of the leader was not asked for again"),
                }
            }
            if let Some(record) = to_write.take() {
                match self.write(since, &record) {
                    Ok(true) => self.say(LeaderEvent::Written(record.map.as_ref().map_or(0, ClusterMap::epoch))),
                    Ok(false) => return Some("another controller leads".into()),
                    Err(error) => {
                        tracing::warn!(%error, "a map was not written, and is tried again");
                        to_write = Some(record);
                    }
                }
            }
            if Instant::now() >= sure_until {
                return Some("etcd has not answered for as long as its lease lasts".into());
            }
        }
    }

    fn write(&mut self, since: i64, record: &DurableState) -> Result<bool, EtcdError> {
        let octets = kept(record)?;
        self.etcd.put_if((&self.leader, since), &self.record, &octets)
    }
}

/// Encodes a state for storage.
///
/// # Errors
///
/// Never returns an error for a state: its parts have known lengths.
pub fn kept(record: &DurableState) -> Result<Vec<u8>, EtcdError> {
    postcard::to_extend(record, vec![FORMAT]).map_err(|error| EtcdError::Answer(error.to_string()))
}

/// Decodes a stored state.
///
/// # Errors
///
/// Returns an error if this release cannot decode it.
pub fn record(octets: &[u8]) -> Result<DurableState, EtcdError> {
    let odd = || EtcdError::Answer("a record of the cluster that this release does not read; start it anew".into());
    match octets.split_first() {
        Some((&FORMAT, octets)) => postcard::from_bytes(octets).map_err(|_| odd()),
        _ => Err(odd()),
    }
}
