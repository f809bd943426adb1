//! A core with a few UEs.

use std::sync::Mutex;
use vireo_ops::api::{
    Counts, DrainError, GnbStatus, HostStatus, LatencyStatus, PoolStatus, RelocateError, SessionStatus, Status,
    StatusFilter, StatusSource, UeChange, UePage, UeQuery, UeSelector, UeStatus, UpfStatus,
};
use vireo_types::{DeregistrationCause, Supi};

/// Source of the API in tests.
#[derive(Debug, Default)]
pub(super) struct Core {
    /// With the cause, 0 for none.
    pub(super) deregistered: Mutex<Vec<(Supi, bool, u8)>>,
    pub(super) located: Mutex<Vec<Supi>>,
    /// RAN nodes besides the first.
    pub(super) further_nodes: Mutex<Vec<String>>,
    /// Hosts besides the first.
    pub(super) hosts: Mutex<Vec<u16>>,
    pub(super) pool_used: Mutex<u64>,
    /// Change of the first UE, which is returned once.
    pub(super) changed: Mutex<Option<UeChange>>,
    /// True while the core answers nothing about UEs.
    pub(super) is_silent: Mutex<bool>,
}

impl Core {
    /// Number of UEs.
    pub(super) const UES: usize = 23;

    fn ue(n: usize, reveal: bool) -> UeStatus {
        let session = SessionStatus {
            psi: 1,
            dnn: "internet".into(),
            ipv4: Some(format!("10.45.0.{}", n + 1)),
            state: "ACTIVE".into(),
            upf: "local".into(),
            ..SessionStatus::default()
        };
        UeStatus {
            supi: if reveal { format!("imsi-9997000000000{n:02}") } else { "imsi-99970**********".into() },
            rm: "REGISTERED".into(),
            cm: "CONNECTED".into(),
            rat: "nr".into(),
            guti: Some(format!("99970-020040-{:08x}", 0xc000 + n)),
            ran_node: Some("99970-1".into()),
            cell: reveal.then(|| "99970-000000001".into()),
            sessions: vec![session],
            ..UeStatus::default()
        }
    }
}

impl StatusSource for Core {
    fn status(&self, filter: &StatusFilter) -> Option<Status> {
        if *self.is_silent.lock().unwrap() {
            return None;
        }
        let mut ids = vec!["99970-1".to_owned()];
        ids.extend(self.further_nodes.lock().unwrap().iter().cloned());
        let node = |id: &String| GnbStatus { id: id.clone(), kind: "gNB".into(), ..GnbStatus::default() };
        let further = self.hosts.lock().unwrap().clone();
        let hosts = [7].into_iter().chain(further);
        let hosts = hosts.map(|host| HostStatus { host, buckets: 4096, ..HostStatus::default() }).collect();
        Some(Status {
            counts: Counts {
                gnbs: ids.len(),
                ues: Core::UES,
                registered: Core::UES,
                connected: 3,
                sessions: Core::UES,
            },
            gnbs: ids.iter().skip(filter.offset).take(filter.limit).map(node).collect(),
            hosts,
            upfs: vec![UpfStatus { name: "local".into(), associated: true, ..UpfStatus::default() }],
            latencies: vec![LatencyStatus {
                kind: "registration".into(),
                count: 4,
                violations: 1,
                ..Default::default()
            }],
            ..Status::default()
        })
    }

    fn ues(&self, query: &UeQuery) -> Option<UePage> {
        if *self.is_silent.lock().unwrap() {
            return None;
        }
        let numbers = 1..=Core::UES;
        let one = |n: Option<usize>| {
            let ues: Vec<_> = n.map(|n| Core::ue(n, query.reveal_supi)).into_iter().collect();
            UePage { total: Some(ues.len()), ues, ..UePage::default() }
        };
        Some(match &query.select {
            UeSelector::Supi(supi) => {
                let digits = Supi::from_u64(*supi).map(Supi::reveal);
                one(numbers.into_iter().find(|n| digits == Some(format!("9997000000000{n:02}"))))
            }
            UeSelector::Tmsi(tmsi) => one(numbers.into_iter().find(|n| 0xc000 + *n as u32 == *tmsi)),
            UeSelector::Address(address) => {
                one(numbers.into_iter().find(|n| address.to_string() == format!("10.45.0.{}", n + 1)))
            }
            UeSelector::All | UeSelector::State(_) | UeSelector::RanNode(_) => {
                let from = query.after.map_or(1, |after| after as usize + 1);
                let last = (from + query.limit - 1).min(Core::UES);
                let ues = (from..=last).map(|n| Core::ue(n, query.reveal_supi)).collect();
                let next = (last < Core::UES).then_some(last as u64);
                UePage { ues, next, total: Some(Core::UES), ..UePage::default() }
            }
            UeSelector::Changed => self.changed.lock().unwrap().take().map_or_else(UePage::default, |change| UePage {
                ues: vec![Core::ue(1, query.reveal_supi)],
                changes: vec![change],
                total: Some(8),
                next: None,
            }),
        })
    }

    fn pools(&self) -> Vec<PoolStatus> {
        let used = *self.pool_used.lock().unwrap();
        vec![PoolStatus { dnn: "internet".into(), cidr: "10.45.0.0/16".into(), used, size: 100 }]
    }

    fn deregister(&self, supi: Supi, again: bool, cause: Option<DeregistrationCause>) -> Option<bool> {
        if *self.is_silent.lock().unwrap() {
            return None;
        }
        let known = supi.reveal().starts_with("9997000000000");
        if known {
            self.deregistered.lock().unwrap().push((supi, again, cause.map_or(0, u8::from)));
        }
        Some(known)
    }

    fn relocate(&self, _: Supi, to: &str) -> Result<(), RelocateError> {
        match to {
            "busy" => Err(RelocateError::Busy),
            "local" => Ok(()),
            _ => Err(RelocateError::UnknownUpf { name: to.into(), known: "local".into() }),
        }
    }

    fn locate(&self, supi: Supi) -> Option<bool> {
        if *self.is_silent.lock().unwrap() {
            return None;
        }
        let known = supi.reveal().starts_with("9997000000000");
        if known {
            self.located.lock().unwrap().push(supi);
        }
        Some(known)
    }

    fn cordon(&self, host: u16, _: bool) -> Result<(), DrainError> {
        if host == 7 { Ok(()) } else { Err(DrainError::NoHost) }
    }

    fn drain(&self, host: u16) -> Result<(), DrainError> {
        if host == 7 { Ok(()) } else { Err(DrainError::NoHost) }
    }
}
