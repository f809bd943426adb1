//! Privileges of usrsctp, which parses input of unauthenticated peers.

use crate::assert_serves_another;
use crate::core::Core;

/// Checks the kernel's status of the thread that parses SCTP packets (proc_pid_status(5)).
#[test]
fn sctp_thread_has_no_privileges() {
    let mut core = Core::start(4, "");
    // NG Setup has succeeded, so the thread runs.
    assert_serves_another(&mut core, 1);
    let tasks = std::fs::read_dir(format!("/proc/{}/task", core.pid())).expect("a process").flatten();
    let status = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    let status: Vec<String> = status.filter(|status| status.starts_with("Name:\tbalancer\n")).collect();
    let [status] = &status[..] else { panic!("{} threads are the balancer", status.len()) };
    for line in ["CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000"] {
        assert!(status.contains(line), "{status}");
    }
    assert!(status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"), "{status}");
    let log = core.log();
    assert!(!log.contains("Operation not permitted") && !log.contains("permit to drop some privileges"), "{log}");
}
