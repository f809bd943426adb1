//! The userspace driver: usrsctp as a protocol engine, with sockets, timers and addresses of our own.
//!
//! usrsctp runs without threads and with AF_CONN addresses: it is given packets ([`library::Library::input`]), it
//! gives packets ([`callbacks::output`]), and it knows peers by numbers ([`peers`]). It knows neither IP nor UDP;
//! [`transport`] does. Everything runs on the thread that polls.
//!
//! One path an association: addresses that a multi-homed peer lists beyond the one it speaks from are not used.

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
