//! Detection of every kind of worker exit, without false positives.

use crate::lab::{ARGS, Lab, Part, env, exclusive_machine, exists, signal, summary};
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use vireo_ops::supervisor::{ExitCause, Program, SupervisorError, WorkerEvent};

const SOON: Duration = Duration::from_millis(150);

#[test]
fn killed_worker_is_noticed_at_once() {
    let _alone = exclusive_machine();
    let lab = Lab::start(Part::Works, |_| {});
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for round in 0..25 {
        // With and without work.
        lab.busy(1, round % 2 == 0);
        let begun = Instant::now();
        let pid = lab.launch(1);
        starts.push(begun.elapsed());
        let begun = Instant::now();
        signal(pid, Signal::KILL);
        assert_eq!(lab.down(1, pid).0, ExitCause::Signal(9));
        ends.push(begun.elapsed());
    }
    summary("from launch to up (a test binary)", starts);
    let (median, _) = summary("from kill -9 to the notice", ends);
    assert!(median < Duration::from_millis(10), "{median:?}");
}

#[test]
fn worker_exit_is_noticed() {
    let _alone = exclusive_machine();
    let lab = Lab::start(Part::Exits, |_| {});
    lab.supervisor.launch(2);
    // It may have exited before its joining was noticed: the resources it left count.
    let pid = match lab.notice() {
        WorkerEvent::Up { pid, .. } => pid,
        WorkerEvent::Down { pid, dead, cause, .. } => {
            assert!(cause == ExitCause::Exited(3) && dead.is_some() && !exists(pid));
            return;
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(lab.down(2, pid).0, ExitCause::Exited(3));
}

#[test]
fn stopped_worker_is_killed_only_with_work() {
    let _alone = exclusive_machine();
    let lab = Lab::start(Part::Works, |_| {});
    let mut spans = Vec::new();
    for _ in 0..10 {
        lab.busy(1, true);
        let pid = lab.launch(1);
        let begun = Instant::now();
        signal(pid, Signal::STOP);
        let (cause, noticed) = lab.down(1, pid);
        assert_eq!(cause, ExitCause::Stopped);
        assert!(noticed >= Duration::from_millis(20), "{noticed:?}");
        spans.push(begun.elapsed());
    }
    let (median, _) = summary("from SIGSTOP to the notice", spans);
    assert!(median <= Duration::from_millis(30), "{median:?}");

    lab.busy(1, false);
    let pid = lab.launch(1);
    signal(pid, Signal::STOP);
    assert!(lab.is_quiet_for(SOON), "it has nothing to do");
    let begun = Instant::now();
    lab.busy(1, true);
    assert_eq!(lab.down(1, pid).0, ExitCause::Stopped, "and now it has");
    println!("from work for a stopped worker to the notice: {:?}", begun.elapsed());
}

#[test]
fn stopped_worker_resumed_in_time_survives() {
    let _alone = exclusive_machine();
    let lab = Lab::start(Part::Works, |c| c.stopped_after = Duration::from_secs(2));
    lab.busy(1, true);
    let pid = lab.launch(1);
    signal(pid, Signal::STOP);
    assert!(lab.is_quiet_for(SOON));
    signal(pid, Signal::CONT);
    assert!(lab.is_quiet_for(SOON));
}

#[test]
fn worker_without_progress_is_killed() {
    let _alone = exclusive_machine();
    for part in [Part::Spins, Part::Sleeps] {
        let lab = Lab::start(part, |c| c.stuck_after = Duration::from_millis(200));
        let pid = lab.launch(3);
        assert!(lab.is_quiet_for(Duration::from_millis(300)), "it has nothing to do");
        lab.busy(3, true);
        let (cause, noticed) = lab.down(3, pid);
        assert_eq!(cause, ExitCause::Stuck);
        assert!(noticed >= Duration::from_millis(200), "{noticed:?}");
        println!("{part:?} with work: noticed after {noticed:?}");
    }
}

#[test]
fn worker_without_join_fails() {
    let _alone = exclusive_machine();
    let lab = Lab::start(Part::Absent, |c| c.joins_within = Duration::from_millis(200));
    lab.supervisor.launch(1);
    lab.supervisor.launch(1);
    match lab.notice() {
        WorkerEvent::Failed { worker: 1, error: SupervisorError::NumberInUse } => {}
        other => panic!("{other:?}"),
    }
    match lab.notice() {
        WorkerEvent::Failed { worker: 1, error: SupervisorError::TooSlow(_) } => {}
        other => panic!("{other:?}"),
    }
    let lab = Lab::start(Part::Absent, |c| c.program.path = "/no/such/program".into());
    lab.supervisor.launch(1);
    assert!(matches!(lab.notice(), WorkerEvent::Failed { error: SupervisorError::Spawn(_), .. }));
    let lab = Lab::start(Part::Absent, |c| c.program = Program { path: "/bin/false".into(), ..Program::this([""; 0]) });
    lab.supervisor.launch(1);
    assert!(matches!(lab.notice(), WorkerEvent::Failed { error: SupervisorError::Ended(ExitCause::Exited(1)), .. }));
}

/// Before it joins, the region does not show its state. A replacement must not wait for the start
/// timeout.
#[test]
fn worker_stopped_before_join_is_killed() {
    let _alone = exclusive_machine();
    let lab = Lab::start(Part::Absent, |_| {});
    lab.supervisor.launch(1);
    let begun = Instant::now();
    let started = || {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let environment = format!("{}={}", env(Part::Absent).0, env(Part::Absent).1);
        let is_it = |pid: u32| {
            let octets = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            octets.split(|octet| *octet == 0).any(|word| word == environment.as_bytes())
                && std::fs::read_to_string(format!("/proc/{pid}/status"))
                    .is_ok_and(|status| status.contains(&format!("PPid:\t{}\n", std::process::id())))
        };
        pids.find(|pid| is_it(*pid))
    };
    let pid = loop {
        match started() {
            Some(pid) => break pid,
            None => assert!(begun.elapsed() < Duration::from_secs(5), "it is not there"),
        }
    };
    signal(pid, Signal::STOP);
    match lab.notice() {
        WorkerEvent::Failed { worker: 1, error: SupervisorError::Ended(ExitCause::Stopped) } => {}
        other => panic!("{other:?}"),
    }
    assert!(begun.elapsed() < Duration::from_secs(5) && !exists(pid));
}

#[test]
fn unreclaimed_worker_number_is_not_reused() {
    let _alone = exclusive_machine();
    let lab = Lab::start(Part::Works, |_| {});
    let pid = lab.launch(1);
    signal(pid, Signal::KILL);
    let WorkerEvent::Down { dead: Some(_), .. } = lab.notice() else { panic!("it is down") };
    lab.supervisor.launch(1);
    assert!(matches!(lab.notice(), WorkerEvent::Failed { error: SupervisorError::Ended(_), .. }));
}

#[test]
fn worker_leaves_or_is_retired() {
    let _alone = exclusive_machine();
    let lab = Lab::start(Part::Leaves, |_| {});
    lab.supervisor.launch(1);
    // It may have exited before it was noticed.
    match lab.notice() {
        WorkerEvent::Up { pid, .. } => assert_eq!(lab.down(1, pid).0, ExitCause::Exited(0)),
        WorkerEvent::Failed { worker: 1, error: SupervisorError::Ended(ExitCause::Exited(0)) } => {}
        other => panic!("{other:?}"),
    }
    let lab = Lab::start(Part::Works, |_| {});
    let (one, two) = (lab.launch(1), lab.launch(2));
    lab.supervisor.stop_worker(1);
    assert_eq!(lab.down(1, one).0, ExitCause::Retired);
    assert!(exists(two));
    // A stopped process does not receive the request.
    signal(two, Signal::STOP);
    lab.supervisor.stop_worker(2);
    assert_eq!(lab.down(2, two).0, ExitCause::Retired);
    let one = lab.launch(1);
    lab.supervisor.stop();
    assert!(!exists(one), "a worker outlives the supervisor");
}

#[test]
fn no_worker_outlives_its_host() {
    let _alone = exclusive_machine();
    let (name, value) = env(Part::Host);
    let mut command = Command::new("/proc/self/exe");
    let mut host = command.args(ARGS).env(name, value).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(host.stdout.take().unwrap()).lines().map(Result::unwrap);
    let workers = lines.filter_map(|l| l.split_once("workers ").map(|(_, w)| w.to_owned())).next().unwrap();
    let workers: Vec<u32> = workers.split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert!(workers.iter().all(|pid| exists(*pid)));
    host.kill().unwrap();
    host.wait().unwrap();
    let begun = Instant::now();
    let ended = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The process that inherits it may reap it later.
        stat.is_empty() || stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']))
    };
    while !workers.iter().all(|pid| ended(*pid)) {
        assert!(begun.elapsed() < Duration::from_secs(5), "the workers go on without a host");
        std::thread::sleep(Duration::from_millis(5));
    }
}
