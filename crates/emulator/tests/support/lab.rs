//! Scripted network behind a memory SCTP endpoint, and emulator runs against it.

use super::upf::{self, Upf};
use super::{Behaviour, Network};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use vireo_emulator::{Error, Options, Progress, Report, run_with};
use vireo_sctp::{Config, Endpoint, Event, memory};
use vireo_types::AssocId;

/// Core on a memory network, with a user plane at `upf`.
pub struct Lab {
    pub sctp: memory::Network,
    pub network: Arc<Mutex<Network>>,
    pub upf: Option<(Ipv4Addr, Upf)>,
    /// Associations of the core, oldest first.
    pub assocs: Mutex<Vec<AssocId>>,
}

pub const CORE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Lab {
    pub fn new(behaviour: Behaviour) -> Self {
        Lab {
            sctp: memory::Network::new(),
            network: Arc::new(Mutex::new(Network::new(behaviour))),
            upf: None,
            assocs: Mutex::default(),
        }
    }

    /// Runs the emulator against the core and returns its report.
    pub fn run(&self, options: &Options) -> Result<Report, Error> {
        self.run_watched(options, &mut |_| {})
    }

    pub fn run_watched(&self, options: &Options, progress: &mut dyn FnMut(Progress)) -> Result<Report, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let config = Config { addresses: vec![CORE.into()], port: 38412, listen: true, ..Config::default() };
        let endpoint = self.sctp.bind(&config).expect("the address is free");
        std::thread::scope(|scope| {
            scope.spawn(|| self.serve(endpoint, &stop));
            if let Some((address, mode)) = self.upf {
                let stop = &stop;
                scope.spawn(move || upf::serve(address, mode, &self.network, stop));
            }
            let open = |n: u32| {
                let address = IpAddr::V4(Ipv4Addr::new(10, 0, 1, n as u8));
                Ok(self.sctp.bind(&Config { addresses: vec![address], ..Config::default() })?)
            };
            // Stops also if the test fails in `progress`.
            let _stop = StopOnDrop(&stop);
            run_with(options, &open, progress)
        })
    }

    fn serve(&self, mut endpoint: Box<dyn Endpoint>, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let mut answers = Vec::new();
            let mut sink = |event: Event<'_>| {
                if let Event::Up { assoc, .. } = event {
                    self.assocs.lock().expect("no panic").push(assoc);
                }
                if let Event::Message { assoc, stream, ppid: 60, data } = event {
                    let mut network = self.network.lock().expect("no panic");
                    answers.extend(network.receive(data).into_iter().map(|pdu| (assoc, stream, pdu)));
                }
            };
            endpoint.poll(Some(Duration::from_millis(20)), &mut sink).expect("memory does not fail");
            for (assoc, stream, pdu) in answers {
                let _ = endpoint.send(assoc, stream, 60, &pdu);
            }
        }
    }
}
