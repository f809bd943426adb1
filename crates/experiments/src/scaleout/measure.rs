//! Packet rate of a UPF with a number of modules.

use super::modules::InterfaceMode;
use super::network::{FIRST_UE, Network};
use crate::context::ExperimentContext;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use vireo_config::Failure;
use vireo_lab::process::on_processors;
use vireo_lab::upf::Upf;
use vireo_traffic::frame_loop::{Direction, FrameLoop, LoopCounters, Teids};
use vireo_traffic::pfcp;
use vireo_types::Teid;

/// Maximum number of unanswered session requests.
const WINDOW: usize = 64;
/// Frames in flight per module and direction: one poll of a veth interface takes as many.
const FRAMES: usize = 64;
const WARM_UP: Duration = Duration::from_millis(300);
/// Limit of the time until all frames of a stopped load have ended.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Packet rates of a module in packets per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    pub(super) uplink: f64,
    pub(super) downlink: f64,
}

impl Rates {
    /// Returns the mean of both directions.
    pub(super) fn each_way(&self) -> f64 {
        f64::midpoint(self.uplink, self.downlink)
    }
}

/// Starts a UPF on the network, sets up the users' sessions, and measures each module while all of
/// them work.
pub(super) fn measure(
    session: &ExperimentContext,
    network: &Network<'_>,
    processors: usize,
    users: u32,
) -> Result<Vec<Rates>, Failure> {
    let modules = network.modules();
    let beside: Vec<usize> = if modules < processors { (modules..processors).collect() } else { vec![] };
    let mut upf = Upf::start(network.upf(), &beside, &network.config(users), &session.interrupt)?;
    let per_place = users / network.ends.len() as u32;
    let teids = establish(network, &mut upf, per_place)?;
    let mut loads = vec![];
    for (place, (ends, teids)) in network.ends.iter().zip(teids).enumerate() {
        let packets = network.packets(place, first_ue(place, per_place), teids);
        loads.push(network.outside(|| FrameLoop::load(ends, packets))??);
    }
    let window = Duration::from_millis(if session.quick { 200 } else { 2000 });
    let rates = measure_loops(network, &mut loads, per_place, window)?;
    drop(loads);
    upf.stop()?;
    Ok(rates)
}

fn first_ue(place: usize, per_place: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST_UE.to_bits() + place as u32 * per_place)
}

/// Sets up `per_place` sessions per place. Returns the TEIDs of each place.
pub(super) fn establish(network: &Network<'_>, upf: &mut Upf, per_place: u32) -> Result<Vec<Teids>, Failure> {
    let places = network.ends.len() as u32;
    let build = |session: u32| {
        let place = network.place(session);
        pfcp::Session {
            ue: Ipv4Addr::from_bits(first_ue(place, per_place).to_bits() + session / places),
            gnb: network.gnb(place),
            teid: Teid(session + 1),
            f_teid: None,
            qfi: 1,
            mbr_kbps: None,
            measured: false,
            filters: 0,
        }
    };
    let mut teids: Vec<Option<Teids>> = vec![None; places as usize];
    let mut odd = None;
    upf.plane.establish(0..per_place * places, WINDOW, build, |established| {
        let place = network.place(established.session);
        let local = established.session / places;
        let of_place = teids[place].get_or_insert_with(|| Teids::with(local, established.teid));
        if !of_place.add(local, established.teid) || established.upf != network.n3(place) {
            odd = Some(established);
        }
    })?;
    match (odd, teids.into_iter().collect::<Option<Vec<_>>>()) {
        (None, Some(teids)) => Ok(teids),
        // The traffic program in the kernel can only describe a list of generations.
        (odd, _) => Err(Failure(format!("the UPF gives F-TEIDs out of order: {odd:?}, so there can be no load"))),
    }
}

/// Returns the counts of each module, taken from its loop or from its processor.
fn counted(network: &Network<'_>, loads: &[FrameLoop]) -> Result<Vec<LoopCounters>, Failure> {
    match network.mode() {
        InterfaceMode::Separate => Ok(loads.iter().map(FrameLoop::counted).collect::<Result<_, _>>()?),
        InterfaceMode::Fanout => {
            let mut counted = loads[0].counted_by_processor()?;
            counted.truncate(network.modules());
            Ok(counted)
        }
    }
}

/// Sends frames of all modules in loops and counts them.
fn measure_loops(
    network: &Network<'_>,
    loads: &mut [FrameLoop],
    sessions: u32,
    window: Duration,
) -> Result<Vec<Rates>, Failure> {
    loads.iter_mut().try_for_each(|load| load.run(0, sessions))?;
    for module in 0..network.modules() {
        let load = &loads[network.place(module as u32)];
        let inject = || {
            on_processors(&[module], || {
                [Direction::Uplink, Direction::Downlink]
                    .into_iter()
                    .try_for_each(|direction| load.inject(direction, 0, FRAMES))
            })
        };
        network.outside(inject)???;
    }
    std::thread::sleep(WARM_UP);
    let (began, before) = (Instant::now(), counted(network, loads)?);
    std::thread::sleep(window);
    let (ended, after) = (Instant::now(), counted(network, loads)?);
    loads.iter_mut().try_for_each(|load| load.run(0, 0))?;
    let seconds = (ended - began).as_secs_f64();
    let rate = |before: u64, after: u64| (after - before) as f64 / seconds;
    let rates: Vec<Rates> = before
        .iter()
        .zip(&after)
        .map(|(before, after)| Rates {
            uplink: rate(before.uplink, after.uplink),
            downlink: rate(before.downlink, after.downlink),
        })
        .collect();
    if let Some(module) = rates.iter().position(|rates| rates.uplink == 0.0 || rates.downlink == 0.0) {
        return Err(Failure(format!("no packet comes through module {module}: {rates:?}")));
    }
    let deadline = Instant::now() + END_WITHIN;
    let mut last = counted(network, loads)?;
    loop {
        std::thread::sleep(Duration::from_millis(10));
        let now = counted(network, loads)?;
        if now == last {
            return Ok(rates);
        }
        last = now;
        if Instant::now() > deadline {
            return Err(Failure("the frames of the load do not end".into()));
        }
    }
}
