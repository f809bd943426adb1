//! Status of the host for the status interface.

use super::inline;
use super::pools::{Nf, NfState};
use super::ran_table::Node;
use super::state::Host;
use super::ue_query::node_id;
use crate::worker::region_layout;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use vireo_core::amf::context::{self, Connection, Procedure, UeContext};
use vireo_core::smf::{SessionState, SmContext};
use vireo_ops::api::{
    Counts, GnbStatus, NfStatus, SessionStatus, SessionVolume, Status, StatusFilter, UeStatus, UpfStatus, WorkerStatus,
};
use vireo_ops::clock::clock;
use vireo_store::region::Snapshot;
use vireo_types::{Dialect, Guami, Guti, RanNodeId, Snssai};

impl Host {
    pub(super) fn status(&mut self, filter: &StatusFilter) -> Status {
        let filter = filter.clone().bounded();
        // In the order of the slots, so that pages do not overlap.
        let mut record = Snapshot::default();
        let page: Vec<_> = self
            .ues
            .region
            .slots_from(0, self.ues.slots)
            .map(|(slot, _)| slot)
            .skip(filter.offset)
            .take(if filter.ues { filter.limit } else { 0 })
            .collect();
        let ues = page.into_iter().filter_map(|slot| {
            self.ues.region.read(slot, &mut record);
            context::decode(&record.context).ok()
        });
        let latencies = self.statistics.step_metrics.slo_tracker.status(clock());
        let mut nodes: Vec<_> = self.nodes.iter().collect();
        nodes.sort_unstable_by_key(|(number, _)| *number);
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_s: self.statistics.started.elapsed().as_secs(),
            counts: Counts {
                gnbs: self.nodes.count(),
                ues: self.statistics.totals.contexts,
                registered: self.statistics.totals.registered,
                connected: self.statistics.totals.connected,
                sessions: self.statistics.totals.sessions,
            },
            ues: ues.map(|ue| self.ue(&ue, filter.reveal_supi)).collect(),
            gnbs: nodes.into_iter().skip(filter.offset).take(filter.limit).map(|(_, n)| gnb(n)).collect(),
            upfs: self
                .upfs
                .iter()
                .map(|(upf, up)| UpfStatus {
                    name: self.upf_name(*upf),
                    node: upf.to_string(),
                    associated: *up,
                    ..UpfStatus::default()
                })
                .collect(),
            workers: self.worker_pids().map(|(number, pid)| self.worker(number, pid)).collect(),
            latencies,
            overload: self.overload_status(),
            hosts: Vec::new(),
            dead_hosts: Vec::new(),
            balancers: Vec::new(),
            copies: 0,
            shards: Vec::new(),
        }
    }

    fn slice_name(&self, snssai: Snssai) -> String {
        let slice = self.config.slices.iter().find(|slice| slice.snssai == snssai);
        slice.map(|slice| slice.name.clone()).unwrap_or_default()
    }

    /// Returns the GUTI of a UE.
    fn guti(&self, ue: &UeContext) -> Option<Guti> {
        match ue.dialect() {
            Dialect::Nr => ue.identity.tmsi.map(|tmsi| Guti { guami: self.config.guami(), tmsi }),
            Dialect::Eps => ue.identity.gutis_of_eps(&self.config).next(),
        }
    }

    /// Returns the volume of a session, if its slice measures it.
    fn volume(&self, session: &SmContext) -> Option<SessionVolume> {
        let is_measured = self.config.charging(session.terms.snssai).is_some_and(|charging| charging.is_on());
        let usage = session.usage;
        is_measured.then_some(SessionVolume { uplink_octets: usage.uplink, downlink_octets: usage.downlink })
    }

    fn upf_name(&self, upf: SocketAddr) -> String {
        self.config
            .upfs
            .iter()
            .find(|known| known.n4 == upf)
            .map_or_else(|| upf.to_string(), |known| known.name.clone())
    }

    /// Returns the number and process of each worker: this process if it runs the steps itself.
    fn worker_pids(&self) -> impl Iterator<Item = (u8, u32)> {
        let inline = self.workers.supervisor.is_none().then(|| (inline::WORKER, std::process::id()));
        self.workers.rings.iter().map(|worker| (worker.number, worker.pid)).chain(inline)
    }

    fn worker(&self, number: u8, pid: u32) -> WorkerStatus {
        let word = |nf: &Nf, word| {
            self.ues.region.shared_word(self.ues.plan.nf_word(nf.id.worker, nf.id.nf, word)).load(Ordering::Relaxed)
        };
        let nfs = self.workers.pools.iter().filter(|nf| nf.id.worker == number).map(|nf| NfStatus {
            id: u32::from(nf.id.worker) << 8 | u32::from(nf.id.nf),
            slice: self.workers.pools.slice(nf.pool_id.slice).map_or_else(String::new, |slice| slice.name.clone()),
            kind: nf.pool_id.kind.map_or("unified", |kind| kind.name()).into(),
            state: if nf.state == NfState::Active { "active" } else { "idle" }.into(),
            queue: nf.queue.len() as u32,
            share: nf.share,
            processed: word(nf, region_layout::NF_EVENTS),
            violations: nf.violated,
            service_time_us: self.workers.pools.time(nf.pool_id).nanos() as f64 / 1000.0,
        });
        WorkerStatus { number, pid, cpu_us: 0, nfs: nfs.collect() }
    }

    pub(super) fn ue(&self, ue: &UeContext, reveal: bool) -> UeStatus {
        let supi = ue.identity.supi.map(|s| if reveal { format!("imsi-{}", s.reveal()) } else { s.to_string() });
        let rm = match (&ue.procedure, ue.is_registered()) {
            (Some(Procedure::Registration(_)), _) => "REGISTERING",
            (_, true) => "REGISTERED",
            (_, false) => "DEREGISTERED",
        };
        let node = ue.connection.and_then(|c| self.nodes.get(c.assoc)).map(|n| &n.record);
        let sessions = ue.sessions.iter().filter(|s| s.is_live()).map(|s| SessionStatus {
            psi: s.id(),
            dnn: s.terms.dnn.to_string(),
            snssai: s.terms.snssai.to_string(),
            slice: self.slice_name(s.terms.snssai),
            ipv4: s.address.ipv4.map(|a| a.to_string()),
            ipv6: s.address.ipv6_prefix.map(|a| format!("{a}/64")),
            state: match s.state() {
                SessionState::Establishing => "ESTABLISHING",
                SessionState::Active => "ACTIVE",
                SessionState::Inactive => "INACTIVE",
                SessionState::Releasing => "RELEASING",
            }
            .into(),
            qfi: 1,
            upf: self.upf_name(s.pfcp.upf),
            moves: s.relocation.is_some(),
            uplink_bps: s.terms.ambr.uplink_bps,
            downlink_bps: s.terms.ambr.downlink_bps,
            five_qi: s.terms.five_qi,
            volume: self.volume(s),
        });
        UeStatus {
            supi: supi.unwrap_or_default(),
            tmsi: ue.identity.tmsi.map(|t| format!("{:08x}", t.0)).unwrap_or_default(),
            rm: rm.into(),
            cm: if ue.connection.is_some() { "CONNECTED" } else { "IDLE" }.into(),
            tai: ue.connection.map(|c| format!("{}-{}", c.tai.plmn, c.tai.tac.0)).unwrap_or_default(),
            cell: ue.connection.filter(|_| reveal).map(|c| cell_text(&c)),
            gnb: node.map(|r| r.name.clone()),
            ran_node: node.map(|r| format!("{}-{}", r.id.plmn(), r.id.value())),
            rat: if ue.dialect() == Dialect::Nr { "nr" } else { "eps" }.into(),
            host: None,
            guti: self.guti(ue).map(|guti| guti_text(&guti)),
            sessions: sessions.collect(),
        }
    }
}

/// Returns PLMN and cell identity in hexadecimal: 36 bits in 5G, 28 bits in EPS (TS 23.003 19.6,
/// 19.6A).
fn cell_text(connection: &Connection) -> String {
    let digits = if connection.assoc.dialect() == Dialect::Nr { 9 } else { 7 };
    format!("{}-{:0digits$x}", connection.cell.plmn, connection.cell.cell)
}

/// Returns PLMN, AMF Identifier (TS 23.003 2.10.1; in EPS it maps to the MME's) and TMSI, the
/// latter two in hexadecimal.
fn guti_text(guti: &Guti) -> String {
    let Guami { plmn, region, set, pointer } = guti.guami;
    let amf = u32::from(region) << 16 | u32::from(set) << 6 | u32::from(pointer);
    format!("{plmn}-{amf:06x}-{:08x}", guti.tmsi.0)
}

fn gnb(node: &Node) -> GnbStatus {
    let record = &node.record;
    let mut tacs: Vec<_> = record.areas.iter().map(|a| a.tai.tac.0).collect();
    tacs.dedup();
    let mut slices: Vec<_> = record.areas.iter().flat_map(|a| &a.slices).map(|s| s.to_string()).collect();
    slices.sort();
    slices.dedup();
    GnbStatus {
        name: record.name.clone(),
        id: node_id(node),
        kind: match record.id {
            RanNodeId::Gnb(_) => "gNB",
            RanNodeId::Enb(_) => "eNB",
            RanNodeId::NgEnb(_) => "ng-eNB",
        }
        .into(),
        address: node.peer.to_string(),
        associations: node.associations(),
        tacs,
        slices,
        ues: node.ues.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_core::amf::context::RanContext;
    use vireo_types::{AmfUeNgapId, AssocId, NrCgi, RanUeNgapId, Tac, Tai};

    #[test]
    fn cell_has_digits_of_its_system() {
        let plmn = "99970".parse().expect("a PLMN");
        for (dialect, expected) in [(Dialect::Nr, "99970-000abc001"), (Dialect::Eps, "99970-0abc001")] {
            let connection = Connection {
                assoc: AssocId(3).with_dialect(dialect),
                ran_id: RanUeNgapId(1),
                amf_id: AmfUeNgapId::from_raw(1).expect("40 bits"),
                tai: Tai { plmn, tac: Tac(1) },
                cell: NrCgi { plmn, cell: 0xab_c001 },
                ran: RanContext::SetUp,
            };
            assert_eq!(cell_text(&connection), expected);
        }
    }
}
