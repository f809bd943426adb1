//! The part of `usrsctp.h` (0.9.5) that this crate uses.
//!
//! Only [`super::library`] calls it.
#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_int, c_uint, c_void};

pub(super) const AF_CONN: u16 = 123;
pub(super) const MSG_NOTIFICATION: c_int = 0x2000;

pub(super) const SCTP_RTOINFO: c_int = 0x01;
pub(super) const SCTP_ASSOCINFO: c_int = 0x02;
pub(super) const SCTP_INITMSG: c_int = 0x03;
pub(super) const SCTP_NODELAY: c_int = 0x04;
pub(super) const SCTP_PEER_ADDR_PARAMS: c_int = 0x0a;
pub(super) const SCTP_DELAYED_SACK: c_int = 0x0f;
pub(super) const SCTP_FRAGMENT_INTERLEAVE: c_int = 0x10;
pub(super) const SCTP_PARTIAL_DELIVERY_POINT: c_int = 0x11;
pub(super) const SCTP_EVENT: c_int = 0x1e;
pub(super) const SCTP_GET_SNDBUF_USE: c_int = 0x1101;

pub(super) const SCTP_ASSOC_CHANGE: u16 = 0x0001;
pub(super) const SCTP_SEND_FAILED_EVENT: u16 = 0x000e;
pub(super) const SCTP_COMM_UP: u16 = 0x0001;
pub(super) const SCTP_COMM_LOST: u16 = 0x0002;
pub(super) const SCTP_RESTART: u16 = 0x0003;
pub(super) const SCTP_SHUTDOWN_COMP: u16 = 0x0004;
pub(super) const SCTP_CANT_STR_ASSOC: u16 = 0x0005;

pub(super) const SCTP_EOF: u16 = 0x0100;
pub(super) const SCTP_ABORT: u16 = 0x0200;
pub(super) const SCTP_SACK_IMMEDIATELY: u16 = 0x4000;
pub(super) const SCTP_SENDV_SNDINFO: c_uint = 1;

pub(super) const SPP_HB_ENABLE: u32 = 0x01;
pub(super) const SPP_HB_DISABLE: u32 = 0x02;
pub(super) const SPP_HB_DEMAND: u32 = 0x04;
pub(super) const SPP_PMTUD_DISABLE: u32 = 0x10;

/// Opaque type of the library.
#[repr(C)]
pub(super) struct socket {
    _private: [u8; 0],
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct sockaddr_conn {
    pub(super) family: u16,
    /// In network byte order.
    pub(super) port: u16,
    /// Any number but 0: the library compares and returns it, and never dereferences it.
    pub(super) addr: *mut c_void,
}

/// `union sctp_sockstore`. Only the AF_CONN member is used here.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union sctp_sockstore {
    pub(super) sconn: sockaddr_conn,
    room: [u32; 7],
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct sctp_rcvinfo {
    pub(super) sid: u16,
    pub(super) ssn: u16,
    pub(super) flags: u16,
    /// In network byte order.
    pub(super) ppid: u32,
    pub(super) tsn: u32,
    pub(super) cumtsn: u32,
    pub(super) context: u32,
    pub(super) assoc_id: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct sctp_sndinfo {
    pub(super) sid: u16,
    pub(super) flags: u16,
    /// In network byte order.
    pub(super) ppid: u32,
    pub(super) context: u32,
    pub(super) assoc_id: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct sctp_assoc_change {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) length: u32,
    pub(super) state: u16,
    pub(super) error: u16,
    pub(super) outbound_streams: u16,
    pub(super) inbound_streams: u16,
    pub(super) assoc_id: u32,
}

/// Header of the notification; the message follows it.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct sctp_send_failed_event {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) length: u32,
    pub(super) error: u32,
    pub(super) info: sctp_sndinfo,
    pub(super) assoc_id: u32,
}

/// Flags of a failed message that is in a single fragment: it begins and ends with these bytes.
pub(super) const SCTP_DATA_NOT_FRAG: u16 = 0x03;

#[repr(C)]
pub(super) struct sctp_event {
    pub(super) assoc_id: u32,
    pub(super) kind: u16,
    pub(super) on: u8,
}

#[repr(C)]
pub(super) struct sctp_initmsg {
    pub(super) num_ostreams: u16,
    pub(super) max_instreams: u16,
    pub(super) max_attempts: u16,
    pub(super) max_init_timeo: u16,
}

#[repr(C)]
pub(super) struct sctp_rtoinfo {
    pub(super) assoc_id: u32,
    pub(super) initial: u32,
    pub(super) max: u32,
    pub(super) min: u32,
}

#[derive(Default)]
#[repr(C)]
pub(super) struct sctp_assocparams {
    pub(super) assoc_id: u32,
    pub(super) peer_rwnd: u32,
    pub(super) local_rwnd: u32,
    pub(super) cookie_life: u32,
    pub(super) asocmaxrxt: u16,
    pub(super) number_peer_destinations: u16,
}

/// `struct sctp_paddrparams`; the address is a complete `sockaddr_storage`.
#[repr(C, align(8))]
pub(super) struct sctp_paddrparams {
    pub(super) family: u16,
    pub(super) address: [u8; 126],
    pub(super) assoc_id: u32,
    pub(super) hbinterval: u32,
    pub(super) pathmtu: u32,
    pub(super) flags: u32,
    pub(super) ipv6_flowlabel: u32,
    pub(super) pathmaxrxt: u16,
    pub(super) dscp: u8,
}

#[repr(C)]
pub(super) struct sctp_sack_info {
    pub(super) assoc_id: u32,
    pub(super) delay: u32,
    pub(super) freq: u32,
}

#[repr(C)]
pub(super) struct sctp_sockstat {
    pub(super) assoc_id: u32,
    pub(super) total_sndbuf: u32,
    pub(super) total_recv_buf: u32,
}

pub(super) type ConnOutput =
    extern "C" fn(addr: *mut c_void, buffer: *mut c_void, length: usize, tos: u8, set_df: u8) -> c_int;
pub(super) type Receive = extern "C" fn(
    sock: *mut socket,
    addr: sctp_sockstore,
    data: *mut c_void,
    length: usize,
    info: sctp_rcvinfo,
    flags: c_int,
    ulp_info: *mut c_void,
) -> c_int;
type SendCallback = extern "C" fn(sock: *mut socket, free: u32, ulp_info: *mut c_void) -> c_int;
type DebugPrintf = unsafe extern "C" fn(format: *const c_char, ...);

unsafe extern "C" {
    pub(super) fn usrsctp_init_nothreads(port: u16, output: ConnOutput, debug: Option<DebugPrintf>);
    pub(super) fn usrsctp_socket(
        domain: c_int,
        kind: c_int,
        protocol: c_int,
        receive: Option<Receive>,
        send: Option<SendCallback>,
        send_threshold: u32,
        ulp_info: *mut c_void,
    ) -> *mut socket;
    pub(super) fn usrsctp_setsockopt(
        so: *mut socket,
        level: c_int,
        name: c_int,
        value: *const c_void,
        length: libc::socklen_t,
    ) -> c_int;
    pub(super) fn usrsctp_getsockopt(
        so: *mut socket,
        level: c_int,
        name: c_int,
        value: *mut c_void,
        length: *mut libc::socklen_t,
    ) -> c_int;
    pub(super) fn usrsctp_set_non_blocking(so: *mut socket, on: c_int) -> c_int;
    pub(super) fn usrsctp_bind(so: *mut socket, name: *const sockaddr_conn, length: libc::socklen_t) -> c_int;
    pub(super) fn usrsctp_listen(so: *mut socket, backlog: c_int) -> c_int;
    pub(super) fn usrsctp_connect(so: *mut socket, name: *const sockaddr_conn, length: libc::socklen_t) -> c_int;
    pub(super) fn usrsctp_getassocid(so: *mut socket, name: *const sockaddr_conn) -> u32;
    pub(super) fn usrsctp_sendv(
        so: *mut socket,
        data: *const c_void,
        length: usize,
        to: *mut sockaddr_conn,
        count: c_int,
        info: *mut sctp_sndinfo,
        info_length: libc::socklen_t,
        info_type: c_uint,
        flags: c_int,
    ) -> isize;
    pub(super) fn usrsctp_close(so: *mut socket);
    pub(super) fn usrsctp_register_address(addr: *mut c_void);
    pub(super) fn usrsctp_conninput(addr: *mut c_void, buffer: *const c_void, length: usize, ecn: u8);
    pub(super) fn usrsctp_handle_timers(elapsed_ms: u32);
    pub(super) fn usrsctp_enable_crc32c_offload();
    pub(super) fn usrsctp_sysctl_set_sctp_ecn_enable(value: u32) -> c_int;
    pub(super) fn usrsctp_sysctl_set_sctp_pr_enable(value: u32) -> c_int;
    pub(super) fn usrsctp_sysctl_set_sctp_auth_enable(value: u32) -> c_int;
    pub(super) fn usrsctp_sysctl_set_sctp_asconf_enable(value: u32) -> c_int;
    pub(super) fn usrsctp_sysctl_set_sctp_auto_asconf(value: u32) -> c_int;
    pub(super) fn usrsctp_sysctl_set_sctp_reconfig_enable(value: u32) -> c_int;
    pub(super) fn usrsctp_sysctl_set_sctp_nrsack_enable(value: u32) -> c_int;
    pub(super) fn usrsctp_sysctl_set_sctp_pktdrop_enable(value: u32) -> c_int;
    pub(super) fn usrsctp_sysctl_set_sctp_max_burst_default(packets: u32) -> c_int;
    pub(super) fn usrsctp_sysctl_set_sctp_shutdown_guard_time_default(seconds: u32) -> c_int;
}

// Sizes according to `gcc` for usrsctp.h on 64-bit Linux: a wrong layout must not compile.
const _: () = {
    assert!(size_of::<usize>() == 8, "the userspace driver keeps addresses in 64-bit handles");
    assert!(size_of::<sockaddr_conn>() == 16 && size_of::<sctp_sockstore>() == 32);
    assert!(size_of::<sctp_rcvinfo>() == 28 && size_of::<sctp_sndinfo>() == 16);
    assert!(size_of::<sctp_assoc_change>() == 20 && size_of::<sctp_event>() == 8);
    assert!(size_of::<sctp_send_failed_event>() == 32);
    assert!(size_of::<sctp_assocparams>() == 20 && size_of::<sctp_sack_info>() == 12);
    assert!(size_of::<sctp_paddrparams>() == 152);
};
