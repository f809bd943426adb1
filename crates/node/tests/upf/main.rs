//! The UPF between real interfaces, in namespaces that each test makes: a scripted SMF and gNB on one side, the
//! kernel's own IP stack as the data network on the other. Needs root.

mod charging;
mod direct;
mod host_routes;
mod life;
mod modules;
mod pace;
mod packets;
mod together;
mod world;
