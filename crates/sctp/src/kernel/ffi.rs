//! The part of `linux/sctp.h` (5.0 and later) that this driver uses.

use libc::c_int;

pub(super) const MSG_NOTIFICATION: c_int = 0x8000;

pub(super) const SCTP_RTOINFO: c_int = 0;
pub(super) const SCTP_ASSOCINFO: c_int = 1;
pub(super) const SCTP_INITMSG: c_int = 2;
pub(super) const SCTP_NODELAY: c_int = 3;
pub(super) const SCTP_PEER_ADDR_PARAMS: c_int = 9;
pub(super) const SCTP_EVENTS: c_int = 11;
pub(super) const SCTP_I_WANT_MAPPED_V4_ADDR: c_int = 12;
pub(super) const SCTP_STATUS: c_int = 14;
pub(super) const SCTP_DELAYED_SACK: c_int = 16;
pub(super) const SCTP_FRAGMENT_INTERLEAVE: c_int = 18;
pub(super) const SCTP_RECVRCVINFO: c_int = 32;
pub(super) const SCTP_SOCKOPT_BINDX_ADD: c_int = 100;
pub(super) const SCTP_SOCKOPT_CONNECTX3: c_int = 111;
pub(super) const SCTP_GET_ASSOC_STATS: c_int = 112;

/// Types of ancillary data.
pub(super) const SCTP_SNDINFO: c_int = 2;
pub(super) const SCTP_RCVINFO: c_int = 3;

pub(super) const SCTP_ABORT: u16 = 1 << 2;
pub(super) const SCTP_SACK_IMMEDIATELY: u16 = 1 << 3;
pub(super) const SCTP_EOF: u16 = libc::MSG_FIN as u16;

pub(super) const SCTP_ASSOC_CHANGE: u16 = 0x8001;
pub(super) const SCTP_COMM_UP: u16 = 0;
pub(super) const SCTP_COMM_LOST: u16 = 1;
pub(super) const SCTP_RESTART: u16 = 2;
pub(super) const SCTP_SHUTDOWN_COMP: u16 = 3;
pub(super) const SCTP_CANT_STR_ASSOC: u16 = 4;

pub(super) const SPP_HB_ENABLE: u32 = 1 << 0;
pub(super) const SPP_HB_DISABLE: u32 = 1 << 1;
pub(super) const SPP_HB_DEMAND: u32 = 1 << 2;

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct SndInfo {
    pub(super) sid: u16,
    pub(super) flags: u16,
    /// In network byte order.
    pub(super) ppid: u32,
    pub(super) context: u32,
    pub(super) assoc_id: i32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct RcvInfo {
    pub(super) sid: u16,
    pub(super) ssn: u16,
    pub(super) flags: u16,
    /// In network byte order.
    pub(super) ppid: u32,
    pub(super) tsn: u32,
    pub(super) cumtsn: u32,
    pub(super) context: u32,
    pub(super) assoc_id: i32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct AssocChange {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) length: u32,
    pub(super) state: u16,
    pub(super) error: u16,
    pub(super) outbound_streams: u16,
    pub(super) inbound_streams: u16,
    pub(super) assoc_id: i32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct InitMsg {
    pub(super) num_ostreams: u16,
    pub(super) max_instreams: u16,
    pub(super) max_attempts: u16,
    pub(super) max_init_timeo: u16,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct RtoInfo {
    pub(super) assoc_id: i32,
    pub(super) initial: u32,
    pub(super) max: u32,
    pub(super) min: u32,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct AssocParams {
    pub(super) assoc_id: i32,
    pub(super) asocmaxrxt: u16,
    pub(super) number_peer_destinations: u16,
    pub(super) peer_rwnd: u32,
    pub(super) local_rwnd: u32,
    pub(super) cookie_life: u32,
}

#[derive(Clone, Copy)]
#[repr(C, packed(2))]
pub(super) struct PaddrParams {
    pub(super) assoc_id: i32,
    pub(super) address: [u32; 32],
    pub(super) hbinterval: u32,
    pub(super) pathmaxrxt: u16,
    pub(super) pathmtu: u32,
    pub(super) sackdelay: u32,
    pub(super) flags: u32,
    pub(super) ipv6_flowlabel: u32,
    pub(super) dscp: u8,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct SackInfo {
    pub(super) assoc_id: i32,
    pub(super) delay: u32,
    pub(super) freq: u32,
}

/// `struct sctp_event_subscribe` up to association changes; the kernel accepts any leading part.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct EventSubscribe {
    pub(super) data_io: u8,
    pub(super) association: u8,
}

/// `struct sctp_status`; the part about the primary path is not used.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Status {
    pub(super) assoc_id: i32,
    pub(super) state: i32,
    pub(super) rwnd: u32,
    pub(super) unackdata: u16,
    pub(super) penddata: u16,
    pub(super) instrms: u16,
    pub(super) outstrms: u16,
    pub(super) fragmentation_point: u32,
    pub(super) primary: [u32; 38],
}

/// `struct sctp_assoc_stats`; only the received packets are used.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct AssocStats {
    pub(super) assoc_id: i32,
    pub(super) address: [u64; 16],
    pub(super) before: [u64; 4],
    pub(super) packets: u64,
    pub(super) after: [u64; 10],
}

/// `struct sctp_getaddrs_old`.
#[repr(C)]
pub(super) struct GetAddrsOld {
    pub(super) assoc_id: i32,
    /// Size of the addresses in bytes.
    pub(super) addr_num: c_int,
    pub(super) addrs: *const libc::sockaddr,
}

// Sizes according to `gcc` for linux/sctp.h on 64-bit machines: a wrong layout must not compile.
const _: () = {
    assert!(size_of::<SndInfo>() == 16 && size_of::<RcvInfo>() == 28 && size_of::<AssocChange>() == 20);
    assert!(size_of::<AssocParams>() == 20 && size_of::<PaddrParams>() == 156 && size_of::<Status>() == 176);
    assert!(size_of::<GetAddrsOld>() == 16 && size_of::<AssocStats>() == 256);
};
