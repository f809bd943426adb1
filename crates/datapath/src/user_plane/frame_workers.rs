//! Start of the workers that read frames.

use super::UserPlane;
use super::config::UserPlaneConfig;
use crate::drivers::af_packet;
use crate::drivers::af_xdp;
use crate::drivers::bare::{Bare, BareFrames};
use crate::drivers::frames::steering::FrameSteering;
use crate::drivers::frames::{Fanout, FrameIo, FrameProcessor, FramesConfig, Group, Kernel};
use crate::drivers::next_hops::Hops;
use crate::drivers::slice_steering::SliceSteering;
use crate::drivers::xdp::XdpMode;
use crate::engine::event::EventSink;
use crate::network::by_family;
use crate::start_error::StartError;
use crate::sys::tun::Tun;
use crate::workers::process::{FrameSetup, ProcessPosts, ProcessWorker, RingWorker};
use crate::workers::slices;
use crate::workers::thread::ThreadEnv;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Parameters of the start of frame workers.
pub(super) struct FrameStart<'a> {
    pub(super) config: &'a UserPlaneConfig,
    pub(super) frames: &'a FramesConfig,
    pub(super) bare: Option<Bare>,
    pub(super) tun: &'a Tun,
    pub(super) steering: Option<&'a SliceSteering>,
    pub(super) events: &'a EventSink,
}

/// Frame processing of one worker, with its processor if it has one.
struct PlacedProcessor {
    processor: FrameProcessor<Kernel>,
    core: Option<usize>,
}

impl UserPlane {
    /// Starts the workers that read frames, or adds their posts.
    pub(super) fn start_frames(
        &mut self,
        start: &FrameStart<'_>,
        posts: Option<&mut ProcessPosts>,
    ) -> Result<(), StartError> {
        let FrameStart { config, frames, .. } = *start;
        if frames.interfaces.is_empty() {
            return Err(StartError::NoFramesInterface);
        }
        let mut steering = FrameSteering::load(frames, &config.n3, &config.pools)?;
        let groups = frames.groups(&config.n3, config.threads());
        let processors = self.frame_processors(start, &groups)?;
        match frames.io {
            FrameIo::AfPacket(fanout) => {
                self.start_af_packet(start, (&mut steering, fanout), &groups, processors, posts)?;
            }
            FrameIo::AfXdp(mode) => self.start_af_xdp(&mut steering, mode, &groups, processors)?,
        }
        self.steering = Some((steering, frames.io));
        Ok(())
    }

    /// Creates a processor for each worker of each group.
    fn frame_processors(&self, start: &FrameStart<'_>, groups: &[Group]) -> Result<Vec<PlacedProcessor>, StartError> {
        let FrameStart { config, frames, bare, tun, events, .. } = *start;
        let placement = slices::placement(&config.slices);
        let processor = |group: &Group| {
            let sockets = self.handle.sockets.clone();
            let own = by_family(&group.n3);
            let exit = Kernel { sockets, own, tun: tun.duplicate()?, events: events.clone() };
            let mut hops = Hops::new(&frames.interfaces[group.interfaces.clone()])?;
            let bare = bare.map(|bare| BareFrames::new(bare, &group.n3, &mut hops, self.clock.now())).transpose()?;
            Ok::<_, StartError>(FrameProcessor::new(exit, hops, &group.n3, &group.next_hops, bare))
        };
        let mut processors = vec![];
        for group in groups {
            for number in 0..group.workers {
                let core = group.cores.get(number).copied().or(placement.get(number).copied().flatten());
                processors.push(PlacedProcessor { processor: processor(group)?, core });
            }
        }
        Ok(processors)
    }

    fn start_af_packet(
        &mut self,
        start: &FrameStart<'_>,
        (steering, fanout): (&mut FrameSteering, Fanout),
        groups: &[Group],
        processors: Vec<PlacedProcessor>,
        mut posts: Option<&mut ProcessPosts>,
    ) -> Result<(), StartError> {
        let open = |group: &Group| af_packet::open(&steering.interfaces[group.interfaces.clone()], group.workers);
        let ports = groups.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let mut workers = 0;
        for ports in &ports {
            self.rings.extend(af_packet::rings(ports)?.into_iter().map(|(n, ring)| (workers + n, ring)));
            workers += ports.len();
        }
        steering.filter(ports.iter().flat_map(|ports| af_packet::sockets(ports)))?;
        for (group, ports) in groups.iter().zip(&ports) {
            let program = start.steering.map(|steering| steering.packets.as_fd());
            af_packet::bind(ports, &steering.interfaces[group.interfaces.clone()], fanout, program)?;
        }
        let of_group = groups.iter().zip(ports).flat_map(|(group, ports)| ports.into_iter().map(move |p| (group, p)));
        for (number, ((group, ports), placed)) in of_group.zip(processors).enumerate() {
            let PlacedProcessor { processor, core } = placed;
            if let Some(posts) = &mut posts {
                let setup = FrameSetup {
                    interfaces: start.frames.interfaces[group.interfaces.clone()].to_vec(),
                    n3: group.n3.clone(),
                    next_hops: group.next_hops.clone(),
                };
                let (sockets, tun) = (self.handle.sockets.clone(), start.tun.duplicate()?);
                let rings = Some(RingWorker { setup, files: ports.files()? });
                self.add_post(posts, ProcessWorker { number, core, sockets, tun, slot: 0, rings })?;
                continue;
            }
            let env = self.thread_env(Some(number), false);
            let worker = af_packet::Worker { processor, ports, clock: self.clock };
            let poller = worker.poller(self.threads.stop_signal().as_fd())?;
            self.threads.spawn(format!("upf-frames-{number}"), core, move || worker.run(&env, &poller))?;
        }
        Ok(())
    }

    fn start_af_xdp(
        &mut self,
        steering: &mut FrameSteering,
        mode: XdpMode,
        groups: &[Group],
        processors: Vec<PlacedProcessor>,
    ) -> Result<(), StartError> {
        let generic = mode == XdpMode::Generic;
        let mut ports = vec![];
        for group in groups {
            ports.extend(af_xdp::open(steering, group.interfaces.clone(), group.workers, generic)?);
        }
        for (number, (ports, placed)) in ports.into_iter().zip(processors).enumerate() {
            let PlacedProcessor { processor, core } = placed;
            let (reader, counters) = (self.handle.stats.tables.reader(), Arc::clone(&self.handle.stats.counters.total));
            let worker = af_xdp::Worker { reader, counters, processor, ports, clock: self.clock };
            let poller = worker.poller(self.threads.stop_signal())?;
            self.threads.spawn(format!("upf-frames-{number}"), core, move || worker.run(&poller))?;
        }
        Ok(())
    }

    /// Returns the environment of a worker thread; see [`ThreadEnv`].
    pub(super) fn thread_env(&self, number: Option<usize>, beside_one: bool) -> ThreadEnv {
        let (counters, reader) = (self.handle.stats.counters.clone(), self.handle.stats.tables.reader());
        ThreadEnv { counters, reader, number, beside_one }
    }
}
