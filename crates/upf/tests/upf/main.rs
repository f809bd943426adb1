//! Tests of the UPF between real interfaces, in network namespaces of each test.
//!
//! A scripted SMF and gNB are on one side, and the kernel's IP stack is the data network on the
//! other. Needs root.

mod charging;
mod direct;
mod host_routes;
mod life;
mod modified;
mod modules;
mod pace;
mod packets;
mod together;
mod world;
