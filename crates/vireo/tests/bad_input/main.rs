//! Bad input to a running core, as a black box.
//!
//! `vireo run` is a separate process, and the tests send it octets. Each test checks the answer
//! that TS 38.412, TS 38.413 and TS 24.501 require, including silence. Afterwards the core must
//! serve a UE on another association. A stopped core must still exit with 0.

mod associations;
mod core;
mod device;
mod flood;
mod guessing;
mod load;
mod messages;
mod n4_and_http;
mod nas;
mod ngap;
#[path = "../ports/mod.rs"]
mod ports;
mod privileges;
mod ran;
mod transport;
mod words;

use crate::core::Core;
use device::Device;
use ran::Ran;

/// Registers an unrelated UE over a separate association.
fn assert_serves_another(core: &mut Core, number: u32) {
    core.assert_alive();
    let mut ran = Ran::set_up(core, 0x00f0_0000 + number);
    let mut device = Device::new(number);
    device.register(&mut ran);
    device.assert_served(&mut ran, "a UE that has nothing to do with it");
}
