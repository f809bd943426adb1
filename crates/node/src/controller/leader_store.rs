//! Where a controller keeps what outlives it, and by what it is known who leads, on a thread of its own: etcd. One
//! controller holds the leader's key, by a lease that it has to ask for again; the record is written only while it does.

use super::etcd::{Etcd, EtcdError, Lease};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vireo_core::cluster::{ClusterMap, DurableState};
use vireo_sctp::Waker;

/// Seconds after which another controller may lead that has not heard of this one's end; etcd grants no fewer.
const LEASE: u64 = 2;
/// How often it is looked whether somebody leads.
const STAND_BY: Duration = Duration::from_millis(250);
/// How soon something is tried again that etcd did not answer.
const AGAIN: Duration = Duration::from_millis(100);
/// The format of what is kept.
const FORMAT: u8 = 1;

/// What a keeper says.
#[derive(Debug)]
pub(super) enum LeaderEvent {
    /// This controller leads, by this record if there is one.
    Leads(Box<Option<DurableState>>),
    /// The record of an epoch is written.
    Written(u64),
    /// Another leads, or may.
    Deposed(String),
}

/// What a controller has of it.
#[derive(Debug)]
pub(super) struct LeaderStore {
    orders: Option<Sender<DurableState>>,
    pub(super) news: Receiver<LeaderEvent>,
    thread: Option<JoinHandle<()>>,
}

impl LeaderStore {
    /// Starts one for the cluster of a name, for a controller of another; who waits for news is waked.
    pub(super) fn start(etcd: Etcd, cluster: &str, name: String, waker: Waker) -> std::io::Result<Self> {
        // One record is written at a time.
        let (orders, received) = bounded(4);
        let (sender, news) = bounded(16);
        let keys = (format!("vireo/{cluster}/leader"), format!("vireo/{cluster}/record"));
        let mut thread =
            LeaderStoreThread { etcd, leader: keys.0, record: keys.1, name, orders: received, news: sender, waker };
        let thread = std::thread::Builder::new().name("keeper".into()).spawn(move || thread.run())?;
        Ok(LeaderStore { orders: Some(orders), news, thread: Some(thread) })
    }

    /// Has a record written.
    pub(super) fn write(&self, record: DurableState) {
        if let Some(orders) = &self.orders {
            // It takes them all until it is told to end.
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
                            // In good order: the next one need not wait for the lease's end.
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
            // Nothing is written while another leads.
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
        // Without a controller there is nobody to tell.
        let _ = self.news.send(news);
        self.waker.wake();
    }

    /// Leads, if nobody does.
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

    /// Leads until it does no longer, which is said, or is told to end.
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

/// A record as it is kept.
///
/// # Errors
///
/// None that a record has: its parts have known lengths.
pub fn kept(record: &DurableState) -> Result<Vec<u8>, EtcdError> {
    postcard::to_extend(record, vec![FORMAT]).map_err(|error| EtcdError::Answer(error.to_string()))
}

/// A record that was kept.
///
/// # Errors
///
/// When it is none that this release reads.
pub fn record(octets: &[u8]) -> Result<DurableState, EtcdError> {
    let odd = || EtcdError::Answer("a record of the cluster that this release does not read; start it anew".into());
    match octets.split_first() {
        Some((&FORMAT, octets)) => postcard::from_bytes(octets).map_err(|_| odd()),
        _ => Err(odd()),
    }
}
