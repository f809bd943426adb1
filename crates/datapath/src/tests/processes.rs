//! Tests of data worker processes: the table of packets, and takeover from killed and stopped
//! processes.

use super::drivers::{Far, Rig, frames, refusal};
use super::packets::{frame, tunnelled};
use super::table::{FLOW, g_pdu, up};
use super::*;
use crate::{ChildProcess, Fanout, FrameIo, FramesConfig, ProcessSpawner, UserPlane, UserPlaneConfig};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, set_parent_process_death_signal};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant as Wall};

/// Spawns processes of this test's executable.
#[derive(Debug)]
pub(super) struct Tests;

struct Process {
    child: Child,
    pidfd: OwnedFd,
}

impl ProcessSpawner for Tests {
    fn start(&self, _: u8, input: &OwnedFd) -> io::Result<Box<dyn ChildProcess>> {
        let mut command = Command::new("/proc/self/exe");
        command.args(["tests::processes::worker_process", "--exact", "--ignored", "--nocapture"]);
        command.stdin(Stdio::from(input.try_clone()?)).stdout(Stdio::null()).process_group(0);
        let child = command.spawn()?;
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        Ok(Box::new(Process { child, pidfd }))
    }
}

impl Process {
    /// Returns true if the process is stopped. A silent process may only lack processor time on a
    /// busy machine.
    fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        // The state follows the name of the process (proc(5)).
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    }
}

impl ChildProcess for Process {
    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    fn reap(&mut self) -> Option<String> {
        self.child.try_wait().expect("its parent").map(|status| status.to_string())
    }

    fn end(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }

    fn is_stuck(&mut self, silent: Duration) -> bool {
        silent >= Duration::from_millis(20) && self.is_stopped()
    }
}

#[test]
#[ignore = "not a test: what the tests here start as a worker's process"]
fn worker_process() {
    set_parent_process_death_signal(Some(Signal::KILL)).expect("set");
    let line = io::stdin().as_fd().try_clone_to_owned().expect("a descriptor");
    crate::run_worker(line).expect("worked");
}

type Change = fn(&mut UserPlaneConfig);

const DRIVERS: [(&str, Change); 2] = [
    ("sockets", |config| config.processes = Some(Arc::new(Tests))),
    ("af-packet", |config| {
        config.processes = Some(Arc::new(Tests));
        config.frames = Some(frames(FrameIo::AfPacket(Fanout::Hash)));
    }),
];

#[test]
fn table_passes_through_processes() {
    for (_, change) in DRIVERS {
        in_namespace(|| Rig::new(&change).table());
    }
}

/// Returns the process of the first worker.
fn worker(driver: &UserPlane) -> Pid {
    let seats = Arc::clone(&driver.stats().tables.arrays().quiescence.worker_slots);
    let end = Wall::now() + Duration::from_secs(5);
    loop {
        if let Some(pid) = Pid::from_raw(seats[0].pid.load(Relaxed) as i32) {
            return pid;
        }
        assert!(Wall::now() < end, "nobody took over");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Counts the packets received at the far end of N6, until `end` is set and no more packets arrive.
fn count(dn: &Far, end: &AtomicBool, came: &AtomicU64) {
    let mut quiet = Wall::now();
    while !end.load(Relaxed) || quiet.elapsed() < Duration::from_millis(100) {
        match dn.receive(mac(6, 7)) {
            Some(_) => {
                came.fetch_add(1, Relaxed);
                quiet = Wall::now();
            }
            None => std::thread::sleep(Duration::from_micros(50)),
        }
    }
}

/// Sends uplink packets of two sessions, one of them with a foreign TEID, and signals the worker
/// repeatedly.
fn under_load(name: &str, change: Change, signal: Signal, signals: u64) {
    let mut rig = Rig::new(&|config: &mut UserPlaneConfig| {
        change(config);
        config.workers = 1;
    });
    let room: libc::c_int = 32 << 20;
    // SAFETY: the option takes an int, which outlives the call.
    unsafe {
        let (fd, length) = (rig.dn.link().as_fd().as_raw_fd(), size_of::<libc::c_int>() as u32);
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, (&raw const room).cast(), length);
    }
    let wire = [0, CHOSEN].map(|n| {
        let datagram = g_pdu(rig.teids[n], FLOW, &up(n as u8, b"under load"));
        frame(mac(3, 9), mac(3, 1), &tunnelled(GNB[0], UPF[0], &datagram))
    });
    let volumes = |rig: &Rig| [0, CHOSEN].map(|n| rig.driver.stats().read(|tables| tables.uplink_volume(rig.teids[n])));
    let before = volumes(&rig);
    let (end, came) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut sent, mut signalled) = ([0_u64; 2], 0);
    std::thread::scope(|scope| {
        scope.spawn(|| count(&rig.dn, &end, &came));
        let mut victim = None;
        for round in 0_u64.. {
            for n in [0, 0, 1, 0] {
                rig.ran.send(&wire[n]);
                sent[n] += 1;
            }
            if round % 8 == 0 {
                // Waits for every worker that is in a batch, dead or alive.
                rig.driver.change(|tables, _| tables.hold_packets(&[rig.teids[1]], []));
                std::thread::sleep(Duration::from_micros(300));
            }
            let now = worker(&rig.driver);
            if round % 500 == 499 && victim != Some(now) {
                if signalled == signals {
                    break;
                }
                kill_process(now, signal).expect("it runs");
                (victim, signalled) = (Some(now), signalled + 1);
            }
        }
        end.store(true, Relaxed);
    });
    let takeovers = rig.driver.stats().takeovers();
    assert_eq!(takeovers.count, signals, "{name}");
    let (all, came) = (sent.iter().sum::<u64>(), came.into_inner());
    // The kernel reports the drops of a full ring.
    rig.driver.upkeep();
    let no_room = rig.driver.stats().stats().dropped(DropReason::RingFull);
    let lost = all - came - no_room;
    println!("{name}, {signal:?}: {all} sent, {lost} lost by {signals}, no room for {no_room}; {takeovers:?}");
    assert!(
        lost <= takeovers.lost_at_most && takeovers.lost_at_most <= 32 * signals,
        "{name}: {lost} of {takeovers:?}"
    );
    // Each packet is counted to its session once, except those that a dead worker held.
    let counted: u64 = volumes(&rig).iter().zip(before).map(|(now, before)| now.packets - before.packets).sum();
    assert!((came..=all).contains(&counted), "{name}: {counted} of {all} are counted, and {came} came");
    assert_eq!(rig.driver.stats().stats().dropped(DropReason::WorkerDied), takeovers.lost_at_most);
    assert!(!rig.driver.has_failed());
    // Every session is unchanged.
    rig.packets();
}

#[test]
fn killed_worker_is_taken_over() {
    for (name, change) in DRIVERS {
        in_namespace(|| under_load(name, change, Signal::KILL, 10));
    }
}

#[test]
fn stopped_worker_is_killed_and_taken_over() {
    for (name, change) in DRIVERS {
        in_namespace(|| under_load(name, change, Signal::STOP, 2));
    }
}

#[test]
fn process_conflicts_are_refused() {
    let says = |change: Change| {
        refusal(|config| {
            config.processes = Some(Arc::new(Tests));
            change(config);
        })
    };
    assert!(says(|config| config.xdp = Some(XdpConfig::default())).contains("a program in the kernel"));
    let af_xdp = says(|config| {
        let io = FrameIo::AfXdp(crate::XdpMode::Native);
        config.frames = Some(FramesConfig { io, ..FramesConfig::default() });
    });
    assert!(af_xdp.contains("AF_XDP"), "{af_xdp}");
    assert!(says(|config| config.limits.locking = Locking::Coarse).contains("locking"));
}
