//! Socket options of a library socket: [`Config`] in the terms of usrsctp.

use super::ffi;
use super::library::{Socket, set_option};
use crate::config::Config;
use crate::endpoint::MAX_MESSAGE;
use std::io;
use std::time::Duration;

fn millis(duration: Duration) -> u32 {
    duration.as_millis().min(u128::from(u32::MAX)) as u32
}

/// Sets all options. `mtu` is the space of a packet after the SCTP common header.
pub(super) fn set(socket: &Socket, config: &Config, mtu: u32) -> io::Result<()> {
    let sctp = libc::IPPROTO_SCTP;
    set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &config.send_buffer.cast_signed())?;
    // Reassembly has room for several messages of maximum size, so that partial delivery never
    // starts.
    set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &(4 * MAX_MESSAGE as i32))?;
    set_option(socket, sctp, ffi::SCTP_NODELAY, &1_i32)?;
    set_option(socket, sctp, ffi::SCTP_FRAGMENT_INTERLEAVE, &0_i32)?;
    set_option(socket, sctp, ffi::SCTP_PARTIAL_DELIVERY_POINT, &(MAX_MESSAGE as u32 + 1))?;
    set_option(socket, sctp, ffi::SCTP_DELAYED_SACK, &ffi::sctp_sack_info { assoc_id: 0, delay: 0, freq: 1 })?;
    for kind in [ffi::SCTP_ASSOC_CHANGE, ffi::SCTP_SEND_FAILED_EVENT] {
        set_option(socket, sctp, ffi::SCTP_EVENT, &ffi::sctp_event { assoc_id: 0, kind, on: 1 })?;
    }
    let init = ffi::sctp_initmsg {
        num_ostreams: config.outbound_streams,
        max_instreams: config.inbound_streams,
        max_attempts: config.init_retries,
        max_init_timeo: millis(config.rto_max).min(u32::from(u16::MAX)) as u16,
    };
    set_option(socket, sctp, ffi::SCTP_INITMSG, &init)?;
    let rto = ffi::sctp_rtoinfo {
        assoc_id: 0,
        initial: millis(config.rto_initial),
        max: millis(config.rto_max),
        min: millis(config.rto_min),
    };
    set_option(socket, sctp, ffi::SCTP_RTOINFO, &rto)?;
    let assoc = ffi::sctp_assocparams { asocmaxrxt: config.retries, ..Default::default() };
    set_option(socket, sctp, ffi::SCTP_ASSOCINFO, &assoc)?;
    let heartbeat = if config.heartbeat.is_zero() { ffi::SPP_HB_DISABLE } else { ffi::SPP_HB_ENABLE };
    let path = ffi::sctp_paddrparams {
        family: ffi::AF_CONN,
        address: [0; 126],
        assoc_id: 0,
        hbinterval: millis(config.heartbeat),
        pathmtu: mtu,
        flags: heartbeat | ffi::SPP_PMTUD_DISABLE,
        ipv6_flowlabel: 0,
        pathmaxrxt: config.retries,
        dscp: 0,
    };
    set_option(socket, sctp, ffi::SCTP_PEER_ADDR_PARAMS, &path)
}
