//! The userspace driver: usrsctp as a protocol engine, with sockets, timers and addresses of our own.
//!
//! usrsctp runs without threads and with AF_CONN addresses: it is given packets ([`library::Library::input`]), it
//! gives packets ([`callbacks::output`]), and it knows peers by numbers ([`peers`]). It knows neither IP nor UDP;
//! [`transport`] does. Everything runs on the thread that polls.
//!
//! One path an association: a multi-homed peer is heard from all its addresses, and answered at the one it associated
//! from. Fail-over to another needs the kernel's driver.

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
