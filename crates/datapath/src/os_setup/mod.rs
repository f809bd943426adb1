//! Operating system set-up of the user plane. It knows no other part of the crate.

pub(crate) mod forwarding;
pub(crate) mod host_routes;
pub(crate) mod interrupts;
pub(crate) mod nat;
pub(crate) mod nic;
pub(crate) mod tun;
