//! The measured UPF: `vireo upf` as a separate process with sessions set up via N4.

use super::network::{FIRST_UE, GNB, Network, POOL, SERVER, UPF_N3};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use vireo_config::Failure;
use vireo_lab::Interrupt;
use vireo_lab::upf::{self as lab, N4};
use vireo_traffic::frame_loop::Teids;
use vireo_traffic::pfcp::{Established, Session, TunnelUpdates};
use vireo_types::Teid;

/// Maximum number of unanswered requests.
const WINDOW: usize = 64;
/// Rate limit that the load never reaches.
const MBR_KBPS: u64 = 100_000_000;

/// A running UPF.
#[derive(Debug)]
pub struct Upf {
    upf: lab::Upf,
    /// Uplink TEIDs of the sessions.
    pub teids: Option<Teids>,
    /// SEIDs that the UPF assigned.
    seids: Vec<u64>,
}

impl Upf {
    /// Starts the UPF on the given processors, with capacity for `sessions` sessions and additional
    /// configuration keys.
    pub fn start(
        network: &Network,
        processors: &[usize],
        sessions: u32,
        datapath: &str,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let (base, length) = POOL;
        let config = format!(
            "[upf]\nn4 = \"{N4}\"\nn3 = [\"{UPF_N3}\"]\nmax-sessions = {sessions}\n[dnn.internet]\nipv4-pool = \
             \"{base}/{length}\"\n[api]\nlisten = \"off\"\n[log]\nlevel = \"warn\"\n{datapath}\n"
        );
        Ok(Upf { upf: lab::Upf::start(&network.upf, processors, &config, interrupt)?, teids: None, seids: vec![] })
    }

    /// Sets up the sessions of the given numbers. Returns the sessions per second.
    pub fn establish(&mut self, sessions: Range<u32>, metered: bool) -> Result<f64, Failure> {
        self.establish_filtered(sessions, metered, 0)
    }

    /// Sets up sessions whose packets match only after a number of other rules.
    pub(super) fn establish_filtered(
        &mut self,
        sessions: Range<u32>,
        metered: bool,
        filters: u16,
    ) -> Result<f64, Failure> {
        self.establish_as(sessions, metered, metered, filters)
    }

    /// Sets up sessions with or without a rate limit that the load does not reach, and with or
    /// without a URR.
    pub fn establish_as(
        &mut self,
        sessions: Range<u32>,
        limited: bool,
        measured: bool,
        filters: u16,
    ) -> Result<f64, Failure> {
        let build = |session: u32| Session {
            ue: Ipv4Addr::from_bits(FIRST_UE.to_bits() + session),
            gnb: GNB,
            teid: Teid(session + 1),
            f_teid: None,
            qfi: 1,
            mbr_kbps: limited.then_some(MBR_KBPS),
            measured,
            filters,
        };
        let (mut teids, mut odd) = (self.teids.take(), None);
        let count = sessions.len();
        self.seids.reserve(count);
        let (plane, seids, began) = (&mut self.upf.plane, &mut self.seids, Instant::now());
        plane.establish(sessions, WINDOW, build, |established| {
            let Established { session, teid, seid, .. } = established;
            seids.push(seid);
            if !teids.get_or_insert_with(|| Teids::with(session, teid)).add(session, teid) {
                odd = Some((session, teid));
            }
        })?;
        let seconds = began.elapsed().as_secs_f64();
        self.teids = teids;
        match odd {
            // The traffic program in the kernel can only describe a list of generations.
            Some(odd) => Err(Failure(format!("the UPF gives TEIDs out of order: {odd:?}, so there can be no load"))),
            None => Ok(count as f64 / seconds),
        }
    }

    /// Moves the UPF's packet threads to a processor.
    pub fn workers_on(&self, processor: usize) -> Result<(), Failure> {
        Ok(self.upf.process.threads_on("upf-", processor)?)
    }

    /// Moves the UPF's N4 thread to a processor.
    pub fn signalling_on(&self, processor: usize) -> Result<(), Failure> {
        Ok(self.upf.process.threads_on("upf-n4", processor)?)
    }

    /// Lets the control plane switch `rate` sessions per second to another tunnel of this RAN node,
    /// until `stop` is set. Returns the number of switched sessions.
    pub fn update_tunnels(&mut self, gnb: Ipv4Addr, rate: f64, stop: &AtomicBool) -> Result<u64, Failure> {
        let handovers = TunnelUpdates { seids: &self.seids, gnb, rate, window: WINDOW };
        Ok(self.upf.plane.update_tunnels(&handovers, stop)?)
    }

    /// Returns the resident memory of the UPF in bytes, including the BPF maps that it has mapped.
    pub fn memory(&self) -> Result<u64, Failure> {
        Ok(self.upf.process.resident_bytes()?)
    }

    /// Stops the UPF gracefully.
    pub fn stop(self) -> Result<(), Failure> {
        self.upf.stop()
    }
}

/// Returns the configuration of the XDP driver.
pub fn xdp(network: &Network) -> String {
    let (n3, n6) = (&network.ours.n3.name, &network.ours.n6.name);
    format!("[datapath]\ndriver = \"xdp\"\ninterfaces = [\"{n3}\", \"{n6}\"]\nnext-hops = [\"{SERVER}\"]")
}
