//! Namespaces of the lab, joined by veth pairs.

use crate::addresses::{
    CORE, CORE_N6, CORE_N6_V6, DN, DN_INTERFACE, DN_V6, ECHO_PORT, N2, N6, RAN, RAN_INTERFACE, has_ipv6,
};
use crate::fabric::{LabSwitch, NetworkPort, NodeRole};
use crate::netns::{self, InterfaceCounters, Netns, NetnsError, VethEnd};
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use vireo_config::Failure;

/// Namespaces of a lab, which exist as long as this value. The creating thread is in the core's
/// namespace.
#[derive(Debug)]
pub struct Lab {
    pub core: Netns,
    pub ran: Netns,
    dn: Netns,
    /// Created with the first network port.
    fabric: Mutex<Option<LabSwitch>>,
}

impl Lab {
    /// Builds the lab with routes for the UE addresses (`network/prefix`). The main thread must
    /// call this once, before other threads exist. The process is in the core's namespace
    /// afterwards.
    pub fn build(ue_networks: &[&str]) -> Result<Self, Failure> {
        netns::isolate()?;
        File::options().read(true).write(true).open("/dev/net/tun").map_err(|e| {
            Failure(format!(
                "this needs read and write access to /dev/net/tun, which is refused ({e}): run it with sudo"
            ))
        })?;
        let (dn, ran, core) = (Netns::new()?, Netns::new()?, Netns::new()?);
        join((&core, &ran), [N2, RAN_INTERFACE], [CORE, RAN])?;
        join((&core, &dn), [N6, DN_INTERFACE], [CORE_N6, DN])?;
        if has_ipv6() {
            // Without `nodad` an address is tentative until the kernel has seen the carrier, even
            // with a minimal wait for duplicates. No socket can bind to a tentative address.
            core.ip(&format!("address add {CORE_N6_V6}/64 dev {N6} nodad"))?;
            dn.ip(&format!("address add {DN_V6}/64 dev {DN_INTERFACE} nodad"))?;
        }
        for network in ue_networks.iter().filter(|n| has_ipv6() || !n.contains(':')) {
            let via = if network.contains(':') { CORE_N6_V6.to_string() } else { CORE_N6.to_string() };
            dn.ip(&format!("route add {network} via {via}"))?;
        }
        core.enter()?;
        let forwarding = ["/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"];
        for file in forwarding.iter().filter(|file| Path::new(file).exists()) {
            std::fs::write(file, "1").map_err(|e| Failure(format!("{file}: {e}")))?;
        }
        let lab = Lab { core, ran, dn, fabric: Mutex::new(None) };
        lab.start_echo()?;
        Ok(lab)
    }

    /// Prepares the far ends of N3 and N6 for native XDP in the core.
    pub(crate) fn prepare_xdp(&self) -> Result<(), Failure> {
        self.dn.run(|| netns::peer_of_xdp(DN_INTERFACE))??;
        Ok(self.ran.run(|| netns::peer_of_xdp(RAN_INTERFACE))??)
    }

    /// Returns the network port of a cluster process, with its cable plugged in. The port lasts as
    /// long as the lab. The caller must be in a thread of the core's namespace.
    pub(crate) fn connect(&self, place: NodeRole) -> Result<Arc<NetworkPort>, Failure> {
        // A panic under the lock leaves the value consistent.
        let mut fabric = self.fabric.lock().unwrap_or_else(PoisonError::into_inner);
        let made = match &mut *fabric {
            Some(fabric) => fabric,
            none => none.insert(LabSwitch::build(&self.core)?),
        };
        let port = made.connect(place, &self.ran)?;
        self.core.enter()?;
        Ok(port)
    }

    /// Returns the kernel's counters of the data network's interface. `rx` counts packets from UEs.
    pub(crate) fn data_network_counters(&self) -> Result<InterfaceCounters, Failure> {
        self.dn.run(|| netns::interface_counters(DN_INTERFACE))?.map_err(Failure::from)
    }

    /// Starts UDP echo, which the kernel does not provide, unlike ICMP echo. The threads last as
    /// long as the process.
    fn start_echo(&self) -> Result<(), Failure> {
        let addresses: [IpAddr; 2] = [DN.into(), DN_V6.into()];
        for address in addresses.into_iter().filter(|a| has_ipv6() || a.is_ipv4()) {
            let address = (address, ECHO_PORT);
            let socket = self.dn.run(|| UdpSocket::bind(address))??;
            std::thread::Builder::new().name("echo".into()).spawn(move || echo(&socket))?;
        }
        Ok(())
    }
}

/// Connects two namespaces by interfaces in one `/24`.
fn join(netns: (&Netns, &Netns), [one, two]: [&str; 2], addresses: [Ipv4Addr; 2]) -> Result<(), NetnsError> {
    let [near, far] = addresses.map(|address| format!("{address}/24"));
    let one = VethEnd { netns: netns.0, interface: one, address: &near };
    Netns::join(one, VethEnd { netns: netns.1, interface: two, address: &far })
}

fn echo(socket: &UdpSocket) {
    let mut buffer = [0; 65_535];
    loop {
        // Errors are ICMP messages about an earlier answer and do not concern the next datagram.
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..length], from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture;
    use crate::options::UE_NETWORKS;
    use crate::process::{self, Process};
    use std::io::{Seek, Write};
    use std::process::Command;
    use std::time::{Duration, Instant};

    /// A packet passes from the RAN through the core's routing to the data network and back. The
    /// kernel counts it, and the capture contains it.
    #[test]
    fn packets_cross_the_lab() {
        if !std::fs::read_to_string("/proc/self/status").unwrap().contains("Uid:\t0\t0") {
            eprintln!("skipped: only root may make a laboratory from a process with threads");
            return;
        }
        let mut file = tempfile::tempfile().unwrap();
        let lab = Lab::build(&UE_NETWORKS).unwrap();
        let capture = capture::Capture::start(file.try_clone().unwrap(), &[N2]).unwrap();
        lab.ran.ip("address add 10.45.0.9/32 dev lo").unwrap();
        lab.ran.ip(&format!("route add default via {CORE} src 10.45.0.9")).unwrap();
        lab.core.ip(&format!("route add 10.45.0.0/16 via {RAN}")).unwrap();
        let before = lab.data_network_counters().unwrap();
        lab.ran.enter().unwrap();
        let socket = UdpSocket::bind((Ipv4Addr::new(10, 45, 0, 9), 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket.send_to(b"VIREO-ECHO", (DN, ECHO_PORT)).unwrap();
        let mut answer = [0; 32];
        assert_eq!(socket.recv(&mut answer).unwrap(), 10);
        let after = lab.data_network_counters().unwrap();
        assert!(after.rx_packets > before.rx_packets && after.tx_packets > before.tx_packets);
        let written = capture.finish().unwrap();
        assert!(written.packets >= 2 && written.lost == 0, "{written:?}");
        file.rewind().unwrap();
        let mut pcap = Vec::new();
        std::io::Read::read_to_end(&mut file, &mut pcap).unwrap();
        assert_eq!(pcap[..4], 0xa1b2_3c4d_u32.to_ne_bytes());
        assert_eq!(pcap.windows(10).filter(|w| w == b"VIREO-ECHO").count(), 2, "once each way");
    }

    #[test]
    fn children_are_measured_and_end() {
        if Netns::new().is_err() {
            eprintln!("skipped: only root may make network namespaces here");
            return;
        }
        let netns = Netns::new().unwrap();
        let mut log = tempfile::tempfile().unwrap();
        log.write_all(b"before\n").unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo started; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exec sleep 60"]);
        let mut child = Process::start("sleeper", &netns, &mut command, Some(log)).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !(child.last_words(1) == "started" && child.cpu().unwrap() > Duration::from_millis(1)) {
            assert!(Instant::now() < deadline, "{:?} {:?}", child.last_words(9), child.cpu());
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(child.resident_bytes().unwrap() > 100_000);
        let begun = Instant::now();
        assert_eq!(child.exit_status().unwrap(), None);
        assert!(!child.terminate().unwrap().success(), "sleep ends by the signal");
        assert!(begun.elapsed() < Duration::from_secs(5));
        assert!(process::cpu_of_ended_children().unwrap() > Duration::from_millis(1));
    }
}
