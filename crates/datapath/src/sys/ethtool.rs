//! Properties that the network driver of an interface reports by ethtool.

use super::check;
use std::os::fd::AsRawFd;

// Constants of linux/ethtool.h and linux/sockios.h, missing in libc.
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const DRIVER_INFO: u32 = 0x03;
const CHANNELS: u32 = 0x3c;
/// Size of `struct ethtool_drvinfo` in bytes, the larger of the two structures.
const MAX_STRUCT_BYTES: usize = 196;

fn query<const WORDS: usize>(name: &str, command: u32) -> Option<[u32; WORDS]> {
    let socket = std::os::unix::net::UnixDatagram::unbound().ok()?;
    let mut words = [0; WORDS];
    words[0] = command;
    // SAFETY: an ifreq is plain data for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: both structures are complete, have room for what these commands write, and outlive
    // the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &mut request) }).ok()?;
    Some(words)
}

/// Returns the name of the network driver.
pub(crate) fn driver(name: &str) -> Option<String> {
    let words: [u32; MAX_STRUCT_BYTES / 4] = query(name, DRIVER_INFO)?;
    let octets: Vec<u8> = words[1..9].iter().flat_map(|word| word.to_ne_bytes()).take_while(|o| *o != 0).collect();
    String::from_utf8(octets).ok()
}

/// Returns the number of receive queues.
pub(crate) fn receive_queues(name: &str) -> Option<u32> {
    let words: [u32; 9] = query(name, CHANNELS)?;
    // Fields `rx_count` and `combined_count`.
    Some(words[5] + words[8]).filter(|count| *count > 0)
}
