//! PACKET_FANOUT: packets per CPU-second of one and of two modules, with the generator apart.
//!
//! A module is a data worker with its rings in the fanout groups of one pair of interfaces. The
//! fanout program selects the ring by TEID and UE address. The generator is a thread that sends on
//! the far ends. It also receives its frames, into the rings. Forwarded frames end at the far ends.
//! So the CPU time of a module is that of classifying and sending, without the generator's.

use super::measure::establish;
use super::modules::{InterfaceMode, MOST, PAPER, counted};
use super::network::{FIRST_UE, Network, POOL};
use crate::context::{ExperimentContext, each};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use vireo_bench::results::{Bound, Configuration, Figure};
use vireo_client::slices;
use vireo_config::Failure;
use vireo_lab::core::API;
use vireo_lab::files::api;
use vireo_lab::process::on_processors;
use vireo_lab::upf::{N4, Upf};
use vireo_traffic::frame_loop::{Direction, FrameLoop};

/// Frames of one direction that the generator sends in a row.
const BURST: u32 = 64;
const WARM_UP: Duration = Duration::from_millis(300);
/// Least ratio of the packets per CPU-second of two modules and of one.
const KEPT: f64 = 0.9;

/// Result with one number of modules.
#[derive(Clone, Debug)]
pub(super) struct FanoutPoint {
    /// Packets that each module forwarded in the window, both directions.
    packets: Vec<u64>,
    /// CPU time of each module in the window, in seconds.
    cpu_s: Vec<f64>,
    /// Length of the window in seconds.
    seconds: f64,
}

impl FanoutPoint {
    fn all(&self) -> f64 {
        self.packets.iter().sum::<u64>() as f64
    }

    /// Returns the packets per CPU-second of all modules together.
    fn per_cpu_second(&self) -> f64 {
        self.all() / self.cpu_s.iter().sum::<f64>().max(1e-9)
    }

    /// Returns the least share of a module in all packets.
    fn least_share(&self) -> f64 {
        self.packets.iter().min().map_or(0.0, |least| *least as f64 / self.all().max(1.0))
    }
}

/// Measures one module, and two if there are two processors.
pub(super) fn measure(session: &ExperimentContext, users: u32) -> Result<Vec<FanoutPoint>, Failure> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let points = (1..=processors.min(2)).map(|modules| {
        session.interrupt.check()?;
        let point = measure_one(session, modules, (users, processors))?;
        let (modules, rate) = (counted(modules), point.per_cpu_second());
        eprintln!("experiment: PACKET_FANOUT, {modules}: {rate:.0} packets per CPU-second");
        Ok(point)
    });
    points.collect()
}

/// Returns the configuration of a slice with a worker for each module, on a processor each.
fn slice_of(modules: usize) -> String {
    let cores: Vec<String> = (0..modules).map(|core| core.to_string()).collect();
    format!("[slice.all]\nsnssai = {{ sst = 1 }}\ndata-workers = {modules}\ndata-cores = [{}]\n", cores.join(", "))
}

pub(super) fn configuration(modules: usize) -> Configuration {
    Configuration {
        name: format!("PACKET_FANOUT, {}", counted(modules)),
        about: "One pair of interfaces; a fanout program selects the ring of a module by TEID and UE address.".into(),
        toml: format!("{}[datapath]\ndriver = \"af-packet\"\n", slice_of(modules)),
    }
}

/// Returns the configuration of the UPF for this many sessions.
fn config(network: &Network<'_>, modules: usize, sessions: u32) -> String {
    let ends = &network.ends[0];
    let interfaces =
        format!("interfaces = [{:?}, {:?}]\nnext-hops = [\"{}\"]\n", ends.n3.name, ends.n6.name, network.server(0));
    format!(
        "[upf]\nn4 = \"{N4}\"\nn3 = [\"{}\"]\nmax-sessions = {sessions}\n[dnn.internet]\nipv4-pool = \"{POOL}\"\n[api]\nlisten \
         = \"127.0.0.1:9090\"\n[log]\nlevel = \"error\"\n{}{interfaces}",
        network.n3(0),
        configuration(modules).toml
    )
}

fn measure_one(
    session: &ExperimentContext,
    modules: usize,
    (users, processors): (u32, usize),
) -> Result<FanoutPoint, Failure> {
    let network = Network::build(&session.lab, InterfaceMode::Fanout, 1)?;
    let mut upf = Upf::start(network.upf(), &[], &config(&network, modules, users), &session.interrupt)?;
    let teids = establish(&network, &mut upf, users)?.pop().ok_or_else(|| Failure("there are no sessions".into()))?;
    let packets = network.packets(0, FIRST_UE, teids);
    // Not run, so that forwarded frames end at the far ends.
    let load = network.outside(|| FrameLoop::load(&network.ends[0], packets))??;
    let window = Duration::from_millis(if session.quick { 300 } else { 3000 });
    let stop = AtomicBool::new(false);
    let generate = || network.outside(|| on_processors(&[processors - 1], || generate(&load, users, &stop)))??;
    let point = std::thread::scope(|scope| {
        let generator = scope.spawn(generate);
        let seen = watch(&upf, modules, window);
        stop.store(true, Relaxed);
        generator.join().map_err(|_| Failure("the thread that generates packets has failed".into()))??;
        seen
    })?;
    drop(load);
    upf.stop()?;
    match point.packets.iter().all(|packets| *packets > 0) {
        true => Ok(point),
        false => Err(Failure(format!("a module forwards no packet: {point:?}"))),
    }
}

/// Sends frames of random sessions in both directions until stopped.
fn generate(load: &FrameLoop, users: u32, stop: &AtomicBool) -> Result<(), Failure> {
    let mut uplink = load.source(Direction::Uplink, users)?;
    let mut downlink = load.source(Direction::Downlink, users)?;
    while !stop.load(Relaxed) {
        uplink.send(BURST)?;
        downlink.send(BURST)?;
    }
    Ok(())
}

/// Returns the forwarded packets and the CPU time of the modules over a window.
fn watch(upf: &Upf, modules: usize, window: Duration) -> Result<FanoutPoint, Failure> {
    let api = api(API)?;
    let look = || {
        let status = slices::list(&api)?;
        let workers = status.slices.first().map(|slice| slice.workers.as_slice()).unwrap_or_default();
        let packets: Vec<u64> = workers.iter().map(|one| one.uplink_packets + one.downlink_packets).collect();
        let cpu = (0..modules).map(|module| upf.process.cpu_of_threads(&format!("upf-frames-{module}")));
        Ok::<_, Failure>((Instant::now(), packets, cpu.collect::<Result<Vec<_>, _>>()?))
    };
    std::thread::sleep(WARM_UP);
    let (began, before, cpu_before) = look()?;
    std::thread::sleep(window);
    let (ended, after, cpu_after) = look()?;
    Ok(FanoutPoint {
        packets: before.iter().zip(&after).map(|(before, after)| after - before).collect(),
        cpu_s: cpu_before.iter().zip(&cpu_after).map(|(before, after)| (*after - *before).as_secs_f64()).collect(),
        seconds: (ended - began).as_secs_f64(),
    })
}

/// Returns the ratio of the packets per CPU-second of two modules and of one.
fn growth(points: &[FanoutPoint]) -> f64 {
    match points {
        [one, two, ..] => two.per_cpu_second() / one.per_cpu_second(),
        _ => f64::NAN,
    }
}

/// Returns the packets per second and direction of [`MOST`] modules with a processor each. Each
/// doubling of their number costs as much per packet as the first one.
fn modelled(points: &[FanoutPoint]) -> f64 {
    let one = points.first().map_or(f64::NAN, FanoutPoint::per_cpu_second);
    let doublings = (MOST as f64).log2();
    one / 2.0 * growth(points).min(1.0).powf(doublings) * MOST as f64
}

pub(super) fn figures(rounds: &[Vec<FanoutPoint>]) -> Result<Vec<Figure>, Failure> {
    let source = InterfaceMode::Fanout.source();
    let most = rounds.iter().map(Vec::len).min().unwrap_or(0);
    let mut figures = vec![];
    for place in 0..most {
        let of = |value: fn(&FanoutPoint) -> f64| each(rounds, move |points: &Vec<FanoutPoint>| value(&points[place]));
        let named = |what: &str| format!("PACKET_FANOUT, {}, {what}", counted(place + 1));
        figures.push(Figure::new(
            named("packets per CPU-second of the modules"),
            "1/s",
            of(FanoutPoint::per_cpu_second)?,
        ));
        figures.push(Figure::new(named("packets"), "1/s", of(|point| point.all() / point.seconds)?));
    }
    if most >= 2 {
        let ratio = each(rounds, |points| growth(points))?;
        let name = "PACKET_FANOUT, 2 modules, packets per CPU-second, of those of 1 module";
        figures.push(Figure::new(name, "ratio", ratio).paper(Bound::About(1.0), source).mark(Bound::AtLeast(KEPT)));
        let share = each(rounds, |points| points[1].least_share())?;
        figures.push(Figure::new("PACKET_FANOUT, 2 modules, packets of the idler one, of all", "ratio", share));
        let model = each(rounds, |points| modelled(points))?;
        figures.push(
            Figure::new(format!("PACKET_FANOUT, {} (model), packets each way", counted(MOST)), "1/s", model)
                .paper(Bound::About(PAPER * MOST as f64), source),
        );
    }
    Ok(figures)
}

/// Returns the notes of these figures.
pub(super) fn notes() -> Vec<String> {
    vec![
        "PACKET_FANOUT: the AF_PACKET driver with a data worker for each module. A generator thread sends as fast as it \
         can, and also receives its frames into the rings. Packets per CPU-second are forwarded packets of both \
         directions by the CPU time of the modules' threads, without that of the generator. The second module shares its \
         processor with the generator on a machine with two."
            .to_owned(),
        format!(
            "Model of {MOST} modules by PACKET_FANOUT: a processor each, and the generator elsewhere. Each doubling costs \
             as much per packet as the measured one. It contains no limit of memory or links."
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(packets: &[u64], cpu_s: &[f64]) -> FanoutPoint {
        FanoutPoint { packets: packets.to_vec(), cpu_s: cpu_s.to_vec(), seconds: 2.0 }
    }

    #[test]
    fn growth_is_judged_per_cpu_second() {
        let one = point(&[1_000_000], &[2.0]);
        // The generator takes half of the second module's processor.
        let two = point(&[1_000_000, 425_000], &[2.0, 1.0]);
        let figures = figures(&[vec![one.clone(), two.clone()]]).unwrap();
        let of = |name: &str| figures.iter().find(|figure| figure.name.ends_with(name)).unwrap();
        let growth = of("of those of 1 module");
        assert_eq!((growth.ours.median, growth.met), (0.95, Some(true)));
        assert_eq!(of("1 module, packets").ours.median, 500_000.0);
        assert!((of("of the idler one, of all").ours.median - 425.0 / 1425.0).abs() < 1e-9);
        let model = of("8 modules (model), packets each way").ours.median;
        assert!((model - 250_000.0 * 8.0 * 0.95_f64.powi(3)).abs() < 1.0, "{model}");
    }

    #[test]
    fn single_processor_has_no_growth() {
        let figures = figures(&[vec![point(&[1_000], &[0.5])]]).unwrap();
        assert!(figures.len() == 2 && figures.iter().all(|figure| figure.met.is_none()));
    }

    #[test]
    fn each_module_has_a_processor() {
        assert!(slice_of(2).contains("data-workers = 2\ndata-cores = [0, 1]\n"));
        assert!(configuration(1).toml.contains("driver = \"af-packet\""));
    }
}
