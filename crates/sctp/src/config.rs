//! Configuration of an endpoint, and the errors of binding it.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

/// UDP port of SCTP over UDP (RFC 6951 clause 4.1, IANA "sctp-tunneling").
pub const UDP_ENCAPSULATION_PORT: u16 = 9899;

/// SCTP implementation of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    /// The kernel's SCTP if available, else usrsctp over raw IP.
    #[default]
    Auto,
    /// The kernel's SCTP; [`crate::bind`] fails without it.
    Kernel,
    /// usrsctp over raw IP, protocol 132.
    UserspaceIp,
    /// usrsctp over UDP (RFC 6951).
    UserspaceUdp,
}

/// Configuration of an endpoint for [`crate::bind`]. `Config::default()` is a client on any
/// address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub driver: Driver,
    /// Local addresses; empty: every address of the machine.
    ///
    /// The kernel driver uses them as paths of each association (multi-homing). The userspace
    /// drivers accept at each address, with one path per association.
    pub addresses: Vec<IpAddr>,
    /// Local SCTP port; 0: every association that [`crate::Endpoint::connect`] starts gets a fresh
    /// port.
    pub port: u16,
    /// True to accept associations; needs a port.
    pub listen: bool,
    /// Local UDP port of [`Driver::UserspaceUdp`]; 0: the system chooses one (for clients).
    pub udp_local_port: u16,
    /// UDP port of the peers that [`crate::Endpoint::connect`] connects to, for
    /// [`Driver::UserspaceUdp`].
    pub udp_remote_port: u16,
    /// Maximum number of concurrent associations; further ones are aborted.
    pub max_associations: usize,
    /// Outbound streams to request. The peer may allow fewer ([`crate::Event::Up`]).
    pub outbound_streams: u16,
    /// Maximum number of inbound streams.
    pub inbound_streams: u16,
    /// Interval between two heartbeats on an idle path.
    ///
    /// With zero there are none, and only sending detects a silent peer.
    pub heartbeat: Duration,
    /// Retransmissions of INIT before a connect fails.
    pub init_retries: u16,
    /// Retransmissions of other chunks, including heartbeats, before the association is closed
    /// (Association.Max.Retrans, RFC 9260 clause 16).
    pub retries: u16,
    /// Retransmission timeout before the first measurement (RTO.Initial).
    pub rto_initial: Duration,
    /// Lower bound of the retransmission timeout (RTO.Min).
    pub rto_min: Duration,
    /// Upper bound of the retransmission timeout (RTO.Max).
    pub rto_max: Duration,
    /// Bytes that an association may queue before [`crate::SendError::Full`].
    pub send_buffer: u32,
    /// Bytes of the largest IP packet to send, including headers (userspace drivers; the kernel
    /// discovers it).
    pub path_mtu: u16,
    /// Request immediate acknowledgement of every message (I bit, RFC 7053), instead of up to 200
    /// ms later.
    pub sack_immediately: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            driver: Driver::Auto,
            addresses: Vec::new(),
            port: 0,
            listen: false,
            udp_local_port: UDP_ENCAPSULATION_PORT,
            udp_remote_port: UDP_ENCAPSULATION_PORT,
            max_associations: 4096,
            outbound_streams: 16,
            inbound_streams: 16,
            heartbeat: Duration::from_secs(10),
            init_retries: 4,
            retries: 5,
            rto_initial: Duration::from_secs(1),
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(4),
            send_buffer: 1 << 20,
            path_mtu: 1500,
            sack_immediately: true,
        }
    }
}

/// Reason that an endpoint could not be created. Each message includes the remedy.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error(
        "this kernel has no SCTP ({0}): load it (`modprobe sctp`; package linux-modules-extra on Ubuntu) or choose \
         another SCTP driver"
    )]
    NoKernelSctp(io::Error),
    #[error(
        "SCTP over raw IP needs CAP_NET_RAW: run as root, or `setcap cap_net_raw+ep` on the binary, or use SCTP over UDP"
    )]
    NoRawSockets,
    #[error("SCTP port {port} of {address} is in use: stop the other process or choose another port")]
    PortInUse { address: IpAddr, port: u16 },
    #[error("UDP port {port} of {address} is in use: stop the other process or choose another encapsulation port")]
    UdpPortInUse { address: IpAddr, port: u16 },
    #[error("{0} is not an address of this machine: add it to an interface or choose another")]
    NoSuchAddress(IpAddr),
    #[error("{key} is {value}, which is not allowed: {allowed}")]
    Invalid { key: &'static str, value: String, allowed: &'static str },
    #[error("this process has {0} userspace SCTP endpoints already, the most there can be: drop one first")]
    TooManyEndpoints(usize),
    #[error("{operation} failed: {error}")]
    System { operation: &'static str, error: io::Error },
}

impl BindError {
    /// Returns a converter of system call errors, for `map_err`.
    pub(crate) fn system(operation: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::System { operation, error }
    }
}

impl Config {
    /// Rejects values for which no system call returns a clear error.
    pub(crate) fn validate(&self) -> Result<(), BindError> {
        let refuse = |key, value: String, allowed| Err(BindError::Invalid { key, value, allowed });
        if self.listen && self.port == 0 {
            return refuse(
                "port",
                "0".into(),
                "an endpoint that listens needs a port (38412 for NGAP, 36412 for S1AP)",
            );
        }
        if self.outbound_streams == 0 || self.inbound_streams == 0 {
            return refuse("streams", "0".into(), "at least 1 each way, and 2 for NGAP (TS 38.412 clause 7)");
        }
        if !(576..=9000).contains(&self.path_mtu) {
            return refuse("path_mtu", self.path_mtu.to_string(), "576 to 9000 bytes");
        }
        if self.send_buffer < crate::MAX_MESSAGE as u32 || self.send_buffer > 1 << 28 {
            return refuse("send_buffer", self.send_buffer.to_string(), "80 KiB to 256 MiB");
        }
        if self.rto_min > self.rto_max || self.rto_initial > self.rto_max || self.rto_min.is_zero() {
            return refuse(
                "rto_max",
                format!("{:?}", self.rto_max),
                "at least rto_min and rto_initial, none of them zero",
            );
        }
        if self.max_associations == 0 || self.max_associations > 1 << 20 {
            return refuse("max_associations", self.max_associations.to_string(), "1 to 1048576");
        }
        Ok(())
    }
}
