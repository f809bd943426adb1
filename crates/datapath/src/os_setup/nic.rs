//! NIC filters that distribute packets to the queues of a network card by address ranges.
//!
//! Uplink packets are distributed by RAN node address, downlink packets by UE address, like the
//! fanout of the paper. The program `ethtool` sets the filters, because it knows how cards number
//! them. They are removed when [`NicFilters`] is dropped.

use crate::network::Pool;
use crate::start_error::StartError;
use crate::sys::ethtool;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use tracing::{info, warn};
use vireo_wire::gtpu;

/// Name of the program that sets and removes filters.
const ETHTOOL: &str = "ethtool";

/// Installed filters. Dropping the value removes them.
#[derive(Debug)]
pub(crate) struct NicFilters {
    program: String,
    /// Interface and filter number of each filter.
    set: Vec<(String, u32)>,
}

/// Arguments of `ethtool -N` for one filter. A set bit in a mask (`m`) means that the address bit
/// is ignored.
type Words = Vec<String>;

/// Returns the filters of an interface with `queues` queues.
fn filters_of(n3: &[IpAddr], pools: &[Pool], queues: u32) -> Vec<Words> {
    let pieces = queues.next_power_of_two();
    let words = |line: String| line.split(' ').map(str::to_owned).collect();
    let v4 = n3.iter().filter_map(|address| match address {
        IpAddr::V4(v4) => Some(*v4),
        IpAddr::V6(_) => None,
    });
    let mut filters: Vec<Words> = vec![];
    for upf in v4 {
        // RAN nodes have consecutive addresses more often than distant ranges, so the lowest bits
        // distribute them.
        let mask = Ipv4Addr::from_bits(!(pieces - 1));
        for piece in 0..pieces {
            let (ran, queue, port) = (Ipv4Addr::from_bits(piece), piece % queues, gtpu::PORT);
            let to = format!("dst-ip {upf} dst-port {port}");
            filters.push(words(format!("flow-type udp4 src-ip {ran} m {mask} {to} action {queue}")));
        }
    }
    for (base, length) in pools.iter().filter_map(|pool| pool.ipv4) {
        let bits = 32 - u32::from(length);
        let Some(of_each) = bits.checked_sub(pieces.trailing_zeros()) else { continue };
        for piece in 0..pieces {
            let first = Ipv4Addr::from_bits(base.to_bits() & !low(bits) | piece << of_each);
            let (mask, queue) = (Ipv4Addr::from_bits(low(of_each)), piece % queues);
            filters.push(words(format!("flow-type ip4 dst-ip {first} m {mask} action {queue}")));
        }
    }
    filters
}

/// Returns a mask of the `bits` lowest bits.
fn low(bits: u32) -> u32 {
    u32::MAX.checked_shr(32 - bits.min(32)).unwrap_or(0)
}

impl NicFilters {
    /// Sets the filters on all interfaces, or on none.
    ///
    /// # Errors
    ///
    /// Returns an error if an interface has one queue only, `ethtool` is missing, or the card
    /// refuses a filter.
    pub(crate) fn set(interfaces: &[String], n3: &[IpAddr], pools: &[Pool]) -> Result<Self, StartError> {
        let mut filters = NicFilters { program: ETHTOOL.to_owned(), set: vec![] };
        for name in interfaces {
            let queues = ethtool::receive_queues(name).filter(|queues| *queues > 1);
            let queues = queues.ok_or_else(|| StartError::NicQueues(name.clone()))?;
            filters.add(name, filters_of(n3, pools, queues))?;
            info!("{name} divides packets among its {queues} queues by addresses");
        }
        Ok(filters)
    }

    fn add(&mut self, name: &str, new: Vec<Words>) -> Result<(), StartError> {
        for words in new {
            let output = Command::new(&self.program).args(["-N", name]).args(words).output();
            let output = output.map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => StartError::NoEthtool,
                _ => StartError::NicFilters { interface: name.to_owned(), reason: error.to_string() },
            })?;
            let refused = |octets: &[u8]| {
                let reason = String::from_utf8_lossy(octets).trim().replace('\n', "; ");
                StartError::NicFilters { interface: name.to_owned(), reason }
            };
            if !output.status.success() {
                return Err(refused(&output.stderr));
            }
            // Output of ethtool: "Added rule with ID N".
            let reason = String::from_utf8_lossy(&output.stdout);
            let number = reason.split_whitespace().last().and_then(|word| word.parse().ok());
            self.set.push((name.to_owned(), number.ok_or_else(|| refused(&output.stdout))?));
        }
        Ok(())
    }
}

impl Drop for NicFilters {
    fn drop(&mut self) {
        for (name, number) in &self.set {
            let number = number.to_string();
            let done = Command::new(&self.program).args(["-N", name, "delete", &number]).output();
            if !done.is_ok_and(|output| output.status.success()) {
                warn!("filter {number} of {name} cannot be removed: see `ethtool -n {name}`");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn pools() -> [Pool; 1] {
        [Pool { ipv4: Some((Ipv4Addr::new(10, 45, 0, 0), 16)), ..Pool::default() }]
    }

    #[test]
    fn every_address_is_some_queues() {
        let lines = |queues| -> Vec<String> {
            let filters = filters_of(&[Ipv4Addr::new(192, 0, 2, 1).into()], &pools(), queues);
            filters.into_iter().map(|words| words.join(" ")).collect()
        };
        assert_eq!(
            lines(2),
            [
                "flow-type udp4 src-ip 0.0.0.0 m 255.255.255.254 dst-ip 192.0.2.1 dst-port 2152 action 0",
                "flow-type udp4 src-ip 0.0.0.1 m 255.255.255.254 dst-ip 192.0.2.1 dst-port 2152 action 1",
                "flow-type ip4 dst-ip 10.45.0.0 m 0.0.127.255 action 0",
                "flow-type ip4 dst-ip 10.45.128.0 m 0.0.127.255 action 1",
            ]
        );
        let three = lines(3);
        assert_eq!(three.len(), 8, "three queues have four pieces");
        assert_eq!(three[7], "flow-type ip4 dst-ip 10.45.192.0 m 0.0.63.255 action 0");
        assert_eq!((low(0), low(32), low(8)), (0, u32::MAX, 255));
    }

    /// A script in place of ethtool logs its arguments.
    #[test]
    fn filters_are_set_and_taken_out() {
        let directory = tempfile::tempdir().expect("a directory");
        let (program, log) = (directory.path().join("tool"), directory.path().join("log"));
        let script = |answer: &str| format!("#!/bin/sh\necho \"$*\" >> {}\n{answer}\n", log.display());
        let write = |answer: &str| {
            fs::write(&program, script(answer)).expect("written");
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
        };
        write("echo Added rule with ID 40");
        let mut filters = NicFilters { program: program.display().to_string(), set: vec![] };
        filters.add("eth0", vec![vec!["flow-type".into(), "ip4".into()]]).expect("set");
        write("echo 'Cannot insert: no' >&2; exit 1");
        let error = filters.add("eth1", filters_of(&[], &pools(), 2)).expect_err("refused").to_string();
        assert!(
            error.contains("eth1") && error.contains("Cannot insert: no") && error.contains("nic-filters"),
            "{error}"
        );
        drop(filters);
        let log = fs::read_to_string(log).expect("asked");
        let lines: Vec<&str> = log.lines().collect();
        assert_eq!((lines[0], lines[2]), ("-N eth0 flow-type ip4", "-N eth0 delete 40"));
        assert!(lines[1].starts_with("-N eth1 flow-type ip4 dst-ip 10.45.0.0"));
    }
}
