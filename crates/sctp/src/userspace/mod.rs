//! The userspace driver: usrsctp as a protocol engine.
//!
//! This module provides sockets, timers and addresses. usrsctp runs without threads and with
//! AF_CONN addresses. It receives packets by [`library::Library::input`], sends packets by
//! [`callbacks::output`], and identifies peers by numbers ([`peers`]). Only [`transport`] handles
//! IP and UDP. Everything runs on the polling thread.
//!
//! Each association has one path. Packets of a multi-homed peer are received from all its
//! addresses, and answered to the address that it associated from. Failover to another address
//! needs the kernel driver.

mod associations;
mod callbacks;
mod checksum;
mod endpoint;
mod ffi;
mod library;
mod options;
mod packets;
mod peers;
mod ports;
mod shared;
mod transport;

pub(crate) use endpoint::Userspace;
