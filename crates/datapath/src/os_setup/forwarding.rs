//! Forwarding settings of the kernel.

use crate::network::Pool;
use crate::start_error::StartError;
use tracing::{info, warn};

/// Enables forwarding for the families of the pools. Logs a warning where it may not.
pub(crate) fn enable(pools: &[Pool]) {
    let families = [
        ("/proc/sys/net/ipv4/ip_forward", "net.ipv4.ip_forward", pools.iter().any(|pool| pool.ipv4.is_some())),
        (
            "/proc/sys/net/ipv6/conf/all/forwarding",
            "net.ipv6.conf.all.forwarding",
            pools.iter().any(|pool| pool.ipv6.is_some()),
        ),
    ];
    for (file, name, needed) in families {
        let on = std::fs::read_to_string(file).is_ok_and(|text| text.trim() != "0");
        if !needed || on {
            continue;
        }
        match std::fs::write(file, "1") {
            Ok(()) => info!("forwarding was off: {name} is 1 now"),
            Err(error) => warn!(
                "forwarding is off and cannot be turned on ({error}): no UE reaches beyond this machine; \
                 run `sysctl -w {name}=1`"
            ),
        }
    }
}

/// Checks that the kernel accepts packets of UEs from these interfaces, though their addresses are
/// routed to the TUN device. The strict filter of RFC 3704 refuses them. The higher of the
/// interface's and the common setting applies.
///
/// # Errors
///
/// Returns an error if the strict filter is active on an interface.
pub(crate) fn check_reverse_path(interfaces: &[String]) -> Result<(), StartError> {
    let filter = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"));
        text.ok().and_then(|text| text.trim().parse::<u8>().ok()).unwrap_or(0)
    };
    match interfaces.iter().find(|name| filter(name).max(filter("all")) == 1) {
        Some(name) => Err(StartError::XdpNatFilter(name.clone())),
        None => Ok(()),
    }
}
