//! Data-side cost of attached idle users, and delivery of their first packets.

use crate::experiment::Plane;
use std::net::Ipv4Addr;
use std::time::Instant;
use vireo_bench::upf::network::GNB;
use vireo_config::Failure;
use vireo_datapath::{
    ALL_FLOWS, Action, DownlinkId, DownlinkRule, Event, Limits, MemoryFrames, Pool, Rate, Released, SharedTables,
    Tables, Tunnel, UplinkRule,
};
use vireo_traffic::frame_loop::Direction;
use vireo_types::{SessionAddress, Teid};

/// Address prefix of all users.
const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);
const LENGTH: u8 = 8;
/// Number of idle users that receive a packet.
const WOKEN: u32 = 1_000;
/// Users installed per change of the tables.
const TOGETHER: usize = 4_096;

/// Results of the measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Idle {
    /// Resident bytes per user.
    pub(super) octets: f64,
    /// Installed users per second.
    pub(super) rate: f64,
    /// Of [`WOKEN`] users, those whose first packet was lost or not reported to the control plane.
    pub(super) lost: u32,
}

fn address(user: u32) -> SessionAddress {
    SessionAddress { ipv4: Some(Ipv4Addr::from_bits(NETWORK.to_bits() + 2 + user)), ipv6_prefix: None }
}

/// Returns the rule of a user, connected if there is a tunnel.
fn rule(user: u32, tunnel: Option<Tunnel>) -> DownlinkRule {
    let action = if tunnel.is_some() { Action::Forward } else { Action::Buffer { notify: true } };
    let (session, mbr) = (user.into(), Rate::from_kbps(100_000));
    DownlinkRule { session, pdr: 2, qfi: Some(1), rqi: false, gate_open: true, action, tunnel, mbr }
}

fn add(tables: &mut Tables, user: u32, released: &mut Released) -> Result<DownlinkId, Failure> {
    let ue = address(user);
    let uplink = UplinkRule { ue, flows: ALL_FLOWS, gate_open: true, forward: true, mbr: Rate::from_kbps(100_000) };
    let teid = tables.add_uplink(None, uplink)?;
    let id = tables.add_downlink(ue, user.into())?;
    tables.set_downlink(id, rule(user, None), false, released);
    tables.worker_map().assign(&[teid], std::iter::once(ue), 1);
    Ok(id)
}

/// Installs `users` users in two-level tables with steering enabled, and wakes some of them.
pub(super) fn measure(plane: &Plane, users: u32, hot_users: usize) -> Result<Idle, Failure> {
    let before = resident()?;
    let began = Instant::now();
    let pool = Pool { ipv4: Some((NETWORK, LENGTH)), mtu: 1400, ..Pool::default() };
    let limits = Limits { records: users as usize, hot_users, ..Limits::default() };
    let mut tables = Tables::new(vec![pool], limits);
    tables.enable_steering();
    let tables = SharedTables::new(tables);
    let mut some = vec![];
    for first in (0..users).step_by(TOGETHER) {
        plane.interrupt.check()?;
        let block = first..users.min(first + TOGETHER as u32);
        tables.change(
            |tables, released| {
                for user in block {
                    let id = add(tables, user, released)?;
                    if user.is_multiple_of((users / WOKEN).max(1)) {
                        some.push((user, id));
                    }
                }
                Ok::<_, Failure>(())
            },
            |_| (),
        )?;
    }
    let frames = MemoryFrames::sharing(tables, &[], &[]);
    let spent = began.elapsed().as_secs_f64();
    let octets = resident()?.saturating_sub(before) as f64 / f64::from(users);
    Ok(Idle { octets, rate: f64::from(users) / spent, lost: wake(plane, frames, &some)? })
}

/// Sends a packet to each of these users and connects the users that are reported to the control
/// plane. Returns the number of users without a packet.
fn wake(plane: &Plane, mut frames: MemoryFrames, some: &[(u32, DownlinkId)]) -> Result<u32, Failure> {
    let mut packets = plane.network.packets(Teid(1));
    let mut lost = 0;
    for (user, id) in some {
        packets.ue = address(*user).ipv4.unwrap_or(Ipv4Addr::UNSPECIFIED);
        let frame = packets.frame(&plane.network.ours, Direction::Downlink, 0)?;
        match frames.next(frame.len()) {
            Some(slot) => slot.copy_from_slice(&frame),
            None => return Err(Failure("a batch has no room".into())),
        }
        frames.process(vireo_types::Instant(1_000_000));
        frames.tables.maintain_hot_table();
        let told = frames.take_side_output().events;
        let tunnel = Tunnel { teid: Teid(user + 1), address: GNB.into() };
        let mut datagrams = 0;
        frames.tables.change(
            |tables, released| tables.set_downlink(*id, rule(*user, Some(tunnel)), false, released),
            |released| datagrams = released.datagrams.len(),
        );
        let expected = [Event::DownlinkData { session: (*user).into(), pdr: 2 }];
        lost += u32::from(datagrams != 1 || told != expected);
    }
    Ok(lost)
}

/// Returns the resident memory of this process in bytes.
fn resident() -> Result<u64, Failure> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    Ok(pages.ok_or_else(|| Failure("/proc/self/statm does not tell the resident memory".into()))?
        * rustix::param::page_size() as u64)
}
