//! Constants of the kernel programs, in the layout of `bpf/entry.h`.

use crate::drivers::module::Module;
use crate::engine::access::table::HashKey;
use crate::engine::entry::wire;
use crate::engine::index::{AddressKey, Range};
use crate::engine::worker_map::WORKERS;
use crate::start_error::StartError;
use std::net::{IpAddr, Ipv6Addr};

const RANGES: usize = 8;
const ADDRESSES: usize = 8;
const INTERFACES: usize = 16;

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct ConfigRange {
    base: u64,
    mask: u64,
    size: u64,
    start: u32,
    mtu: u32,
}

/// Constants of the kernel program.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct KernelConfig {
    v4: [ConfigRange; RANGES],
    v6: [ConfigRange; RANGES],
    n3_v4: [u32; ADDRESSES],
    n3_v6: [[u32; 4]; ADDRESSES],
    interfaces: [u32; INTERFACES],
    module: [u32; INTERFACES],
    ranges_v4: u32,
    ranges_v6: u32,
    addresses_v4: u32,
    addresses_v6: u32,
    interface_count: u32,
    modules: u32,
    next_v4: [u32; ADDRESSES],
    next_v6: [[u32; 4]; ADDRESSES],
    to_stack: u32,
    tun: u32,
    own_peer_only: u32,
    isolates: u32,
    access_key: [u64; 2],
    processors: [[u32; 32]; 2],
}

// SAFETY: plain integers without padding.
unsafe impl aya::Pod for KernelConfig {}

const _: () =
    assert!(size_of::<KernelConfig>() == 2 * RANGES * 32 + 2 * ADDRESSES * 20 + INTERFACES * 8 + 56 + 4 * WORKERS);
const _: () = assert!(WORKERS == 64);

impl KernelConfig {
    /// Leaves decapsulated uplink packets to the kernel's stack.
    pub(crate) fn leave_to_stack(&mut self) {
        self.to_stack = 1;
    }

    /// Sets the processors of the workers of slices.
    pub(crate) fn set_processors(&mut self, workers: &[usize]) {
        for (place, processor) in self.processors.as_flattened_mut().iter_mut().zip(workers) {
            *place = *processor as u32;
        }
    }

    /// Sets the checks on G-PDU sources (own peer only) and on packets between isolated UEs.
    pub(crate) fn set_checks(&mut self, own_peer_only: bool, isolates: bool) {
        (self.own_peer_only, self.isolates) = (own_peer_only.into(), isolates.into());
    }

    /// Sets the key of the address table.
    pub(crate) fn set_access_key(&mut self, HashKey(key): HashKey) {
        self.access_key = key;
    }

    /// Sets the device that the kernel's routes for UEs use.
    pub(crate) fn set_tun(&mut self, index: u32) {
        self.tun = index;
    }

    /// Creates the constants for these pools, N3 addresses, interfaces and next hops of uplink
    /// packets. The first N3 address of each family is the source of tunnels.
    ///
    /// # Errors
    ///
    /// Returns an error if there are more items than the program supports.
    pub(crate) fn new(
        ranges: &[Range],
        n3: &[IpAddr],
        interfaces: &[u32],
        next_hops: &[IpAddr],
    ) -> Result<Self, StartError> {
        let mut config = KernelConfig::default();
        for range in ranges {
            let new = |base| {
                let Range { mask, size, start, mtu, .. } = *range;
                ConfigRange { base, mask, size, start: start as u32, mtu: mtu.into() }
            };
            let (list, count, range) = match range.base {
                AddressKey::V4(base) => (&mut config.v4, &mut config.ranges_v4, new(base.into())),
                AddressKey::V6(base) => (&mut config.v6, &mut config.ranges_v6, new(base)),
            };
            append(list, count, range, "pools of a family")?;
        }
        for address in n3 {
            match address {
                IpAddr::V4(v4) => append(&mut config.n3_v4, &mut config.addresses_v4, wire(*v4), "N3 addresses")?,
                IpAddr::V6(v6) => append(&mut config.n3_v6, &mut config.addresses_v6, words(*v6), "N3 addresses")?,
            }
        }
        for interface in interfaces {
            append(&mut config.interfaces, &mut config.interface_count, *interface, "interfaces")?;
        }
        config.set_next_hops(0, next_hops);
        Ok(config)
    }

    /// Sets the next hops of the module's uplink packets.
    fn set_next_hops(&mut self, module: usize, next_hops: &[IpAddr]) {
        for next_hop in next_hops {
            match next_hop {
                IpAddr::V4(v4) => self.next_v4[module] = wire(*v4),
                IpAddr::V6(v6) => self.next_v6[module] = words(*v6),
            }
        }
    }

    /// Assigns interfaces and N3 addresses to modules, in order. `interfaces` are names and indexes
    /// of those passed to [`KernelConfig::new`].
    ///
    /// # Errors
    ///
    /// Returns an error if there are more modules than the program supports.
    pub(crate) fn set_modules(&mut self, modules: &[Module], interfaces: &[(String, u32)]) -> Result<(), StartError> {
        if modules.len() > ADDRESSES {
            return Err(StartError::XdpTooMany { most: ADDRESSES, items: "modules" });
        }
        self.modules = modules.len() as u32;
        for (number, module) in modules.iter().enumerate() {
            self.set_next_hops(number, &module.next_hops);
            for (place, (name, _)) in self.module.iter_mut().zip(interfaces) {
                if module.interfaces.contains(name) {
                    *place = number as u32;
                }
            }
        }
        Ok(())
    }
}

/// Returns an IPv6 address in network byte order.
fn words(address: Ipv6Addr) -> [u32; 4] {
    let mut words = [0; 4];
    for (word, octets) in words.iter_mut().zip(address.octets().as_chunks::<4>().0) {
        *word = u32::from_ne_bytes(*octets);
    }
    words
}

fn append<T, const N: usize>(
    list: &mut [T; N],
    count: &mut u32,
    value: T,
    items: &'static str,
) -> Result<(), StartError> {
    *list.get_mut(*count as usize).ok_or(StartError::XdpTooMany { most: N, items })? = value;
    *count += 1;
    Ok(())
}
