//! State shared by the UPF's thread and a control plane of the same process.
//!
//! The control plane passes PFCP messages by function call instead of the network. Each request
//! saves two thread wake-ups and four system calls.

use crate::machine::Upf;
use crate::machine::exchange::Outgoing;
use crate::machine::settings::Timestamps;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::debug;
use vireo_datapath::{Clock, TablesHandle, UserPlane, Waker};
use vireo_n4::InProcess;
use vireo_ops::clock::clock;
use vireo_ops::traces::tracer;
use vireo_types::Instant;

/// Seconds from 1900-01-01, the epoch of NTP, to 1970-01-01.
const NTP_EPOCH: u64 = 2_208_988_800;

/// Returns the seconds since 1900-01-01, modulo 2^32 (RFC 5905).
pub(crate) fn ntp_now() -> u32 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    (unix + NTP_EPOCH) as u32
}

/// State machine, tables and socket of a UPF.
#[derive(Debug)]
pub(crate) struct UpfShared {
    upf: Mutex<Upf>,
    pub(crate) socket: UdpSocket,
    editor: TablesHandle,
    clock: Clock,
    /// Wakes the thread that processes deadlines.
    wake: Waker,
}

impl UpfShared {
    pub(crate) fn new(upf: Upf, socket: UdpSocket, datapath: &UserPlane, wake: Waker) -> Self {
        UpfShared { upf: Mutex::new(upf), socket, editor: datapath.handle(), clock: datapath.clock(), wake }
    }

    pub(crate) fn now(&self) -> Timestamps {
        Timestamps { instant: self.clock.now(), ntp: ntp_now() }
    }

    /// Locks the state machine. The lock must be held briefly, because a control plane may wait for
    /// it.
    pub(crate) fn upf(&self) -> MutexGuard<'_, Upf> {
        self.upf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) fn plane(&self) -> &TablesHandle {
        &self.editor
    }

    /// Returns when the thread must next process a deadline.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.upf().deadline()
    }

    /// Processes a datagram; `may_repeat` as in [`Upf::process`]. Returns true if the next deadline
    /// has become earlier.
    pub(crate) fn receive(&self, from: SocketAddr, datagram: &[u8], may_repeat: bool, out: &mut Outgoing) -> bool {
        let (traced, answered) = (tracer().map(|tracer| (tracer, clock())), out.len());
        let now = self.now();
        let mut upf = self.upf();
        let before = upf.deadline();
        upf.process(from, datagram, may_repeat, now, &mut self.plane(), out);
        if let Some((tracer, start)) = traced {
            out[answered..].iter().for_each(|(_, datagram)| tracer.record_executed(datagram, start, clock()));
        }
        upf.deadline().is_some_and(|after| before.is_none_or(|before| after < before))
    }

    pub(crate) fn send(&self, out: &mut Outgoing) {
        for (to, datagram) in out.drain(..) {
            if let Err(error) = self.socket.send_to(&datagram, to) {
                debug!("N4 to {to}: {error}");
            }
        }
    }
}

/// Access to a UPF of the same process: PFCP as on the network, with immediate responses.
#[derive(Clone, Debug)]
pub struct InProcessN4 {
    address: SocketAddr,
    served: Arc<UpfShared>,
}

impl InProcessN4 {
    pub(crate) fn new(address: SocketAddr, served: Arc<UpfShared>) -> Self {
        InProcessN4 { address, served }
    }
}

impl InProcess for InProcessN4 {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn exchange(&self, from: SocketAddr, datagram: &[u8], may_repeat: bool, answer: &mut dyn FnMut(Vec<u8>)) {
        let mut out = Outgoing::new();
        if self.served.receive(from, datagram, may_repeat, &mut out) {
            self.served.wake.wake();
        }
        out.extract_if(.., |(to, _)| *to == from).for_each(|(_, datagram)| answer(datagram));
        self.served.send(&mut out);
    }
}
