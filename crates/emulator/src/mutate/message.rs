//! One mutated message for the state of one UE.

use super::device::{ATTACKERS, Device};
use super::dice::{chance, pick};
use super::good::GoodIds;
use super::library::{self, Library};
use super::peer::{NODE, WITH_UES};
use super::report::{Depth, Level, State};
use super::{element, nas, octets};
use crate::dialect::{Establishment, Node, Protocol, UeIds, guti_octets};
use crate::error::Error;
use crate::load::Rng;
use crate::node_set::NodeSet;
use crate::options::Options;
use crate::progress::EndpointFactory;
use crate::ran::ConnectionId;
use crate::rat::Rat;
use crate::ue::security::header;
use vireo_types::{Guami, Guti, Tmsi};

/// Message that is ready to be sent.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) peer: usize,
    pub(super) octets: Vec<u8>,
    pub(super) level: Level,
    /// True if its NAS is validly protected.
    pub(super) protected: bool,
}

/// Levels with their weights for UEs with and without a security context.
const WEIGHTS: [(Level, usize, usize); 5] = [
    (Level::Byte, 11, 20),
    (Level::Asn1, 17, 32),
    (Level::Nas, 12, 34),
    (Level::Protected, 47, 0),
    (Level::Order, 13, 14),
];

/// Returns how far the decoders read a message.
pub(super) fn depth(protocol: &Protocol, message: &Message) -> Depth {
    if !protocol.decodes(&message.octets) {
        return Depth::Transport;
    }
    if message.protected {
        return Depth::Protected;
    }
    let nas = protocol.nas_of(&message.octets);
    if nas.is_some_and(|nas| nas::is_read(protocol.rat, &nas)) { Depth::Nas } else { Depth::Asn1 }
}

/// Returns true if the UE and the core have a security context in this state.
fn is_secured(state: State) -> bool {
    use State::*;
    matches!(state, SecurityMode | Accepted | Registered | Session | Idle | Deregistering | Handover)
}

fn level(state: State, has_keys: bool, rng: &mut Rng) -> Level {
    let secured = has_keys && is_secured(state);
    let weight = |(_, with, without): &(Level, usize, usize)| if secured { *with } else { *without };
    let mut place = rng.below(WEIGHTS.iter().map(weight).sum());
    for entry in &WEIGHTS {
        if place < weight(entry) {
            return entry.0;
        }
        place -= weight(entry);
    }
    Level::Byte
}

/// Returns a 5G-GUTI with this 5G-S-TMSI.
fn guti_of(options: &Options, name: [u8; 6]) -> Guti {
    let set = u16::from_be_bytes([name[0], name[1]]);
    let guami = Guami { plmn: options.profile.plmn, region: 1, set: set >> 6, pointer: (set & 0x3f) as u8 };
    Guti { guami, tmsi: Tmsi(u32::from_be_bytes([name[2], name[3], name[4], name[5]])) }
}

/// Protects a changed message with the UE's next uplink COUNT.
pub(super) fn protect(device: &mut Device, options: &Options, state: State, rng: &mut Rng) -> Option<Vec<u8>> {
    let names = device.names(options);
    let out = match state {
        State::Idle => {
            let request = match rng.below(4) {
                0 => nas::registration(&names, rng),
                1 => nas::deregistration(&names, rng),
                // A SERVICE REQUEST of EPS is too short to change: a TRACKING AREA UPDATE REQUEST.
                _ => nas::return_from_idle(&names, rng),
            };
            let (mut clear, mut whole) = (request.clone(), request);
            let of_clear = names.rat == Rat::Eps || chance(rng, 40);
            nas::mutate(if of_clear { &mut clear } else { &mut whole }, names.rat, rng);
            if chance(rng, 80) {
                device.ue.protect_initial(&clear, &whole)?
            } else {
                device.ue.protect(header::INTEGRITY, &clear)?
            }
        }
        State::SecurityMode => {
            let mut plain = nas::security_mode_complete(&names, rng);
            if chance(rng, 80) {
                nas::mutate(&mut plain, names.rat, rng);
            }
            device.ue.protect(header::NEW_CIPHERED, &plain)?
        }
        _ => device.ue.protect(header::CIPHERED, &nas::inner(&names, rng))?,
    };
    device.spoiled |= !device.deferred.is_empty();
    device.remember(&out);
    Some(out)
}

/// Attacking nodes and UEs with their knowledge.
pub(super) struct Attackers<'a> {
    pub(super) nodes: NodeSet<'a>,
    pub(super) devices: Vec<Device>,
    pub(super) library: Library,
    pub(super) rng: Rng,
    pub(super) good_ids: &'a GoodIds,
}

impl<'a> Attackers<'a> {
    /// Sets the nodes up; the UEs are switched off.
    ///
    /// # Errors
    ///
    /// Returns an error if the core does not accept a node, or if there are too few subscribers.
    pub(super) fn new(options: &'a Options, open: EndpointFactory<'_>, good_ids: &'a GoodIds) -> Result<Self, Error> {
        let nodes = NodeSet::attackers(options, open)?;
        let library = Library::new(&nodes.peers[0].node, &nodes.peers[1].node);
        let devices = (0..ATTACKERS).map(|n| Device::new(options, options.ues + n)).collect::<Result<_, _>>()?;
        Ok(Attackers { nodes, devices, library, rng: Rng::new(options.seed), good_ids })
    }

    /// Returns a message of this UE for its state.
    pub(super) fn make(&mut self, index: usize, state: State) -> Option<Message> {
        let has_keys = self.devices[index].ue.has_security();
        let level = level(state, has_keys, &mut self.rng);
        self.make_at(index, state, level)
    }

    /// Returns a message of this UE for its state, changed at this level.
    pub(super) fn make_at(&mut self, index: usize, state: State, level: Level) -> Option<Message> {
        let plain = |octets: Vec<u8>, peer| Message { peer, octets, level, protected: false };
        match level {
            Level::Byte => {
                let (peer, mut octets) = self.sound(index)?;
                octets::mutate(&mut octets, 0, &mut self.rng);
                (!octets.is_empty()).then(|| plain(octets, peer))
            }
            Level::Asn1 => {
                let (peer, octets) = self.sound(index)?;
                let donor = self.library.any(&mut self.rng);
                Some(plain(element::mutate(self.nodes.protocol(), &octets, donor, &mut self.rng), peer))
            }
            Level::Nas => {
                let names = self.devices[index].names(self.nodes.options);
                let mut content = match chance(&mut self.rng, 20) {
                    true => nas::transport(&nas::sm(&names, &mut self.rng), &names, &mut self.rng),
                    false => nas::mm(&names, &mut self.rng),
                };
                nas::mutate(&mut content, names.rat, &mut self.rng);
                let (peer, octets) = self.carry(index, &content)?;
                Some(plain(octets, peer))
            }
            Level::Protected => {
                let options = self.nodes.options;
                let content = protect(&mut self.devices[index], options, state, &mut self.rng)?;
                let (peer, octets) = self.carry(index, &content)?;
                Some(Message { protected: true, ..plain(octets, peer) })
            }
            Level::Order => self.misplaced(index, state),
        }
    }

    /// Returns the UE's connection; during a handover, either of the two.
    fn connection(&mut self, index: usize) -> Option<(usize, UeIds)> {
        let device = &self.devices[index];
        let (peer, ran) = match device.target {
            Some(target) if chance(&mut self.rng, 40) => target,
            _ => device.at?,
        };
        Some((peer, library::ids_of(&self.nodes.peers[peer].node, ran)?))
    }

    /// Returns a valid PDU with this NAS, for the UE's connection or a new one.
    fn carry(&mut self, index: usize, nas: &[u8]) -> Option<(usize, Vec<u8>)> {
        if let Some((peer, ids)) = self.connection(index) {
            return Some((peer, library::uplink_nas(&self.nodes.peers[peer].node, ids, nas)?));
        }
        if self.devices[index].at.is_some() {
            return None;
        }
        let (peer, guti) = (index % WITH_UES, self.devices[index].ue.guti());
        let cause = *pick(&mut self.rng, &[Establishment::Signalling, Establishment::Data]);
        self.nodes.outbox.clear();
        let node = &mut self.nodes.peers[peer].node;
        let ran = node.initial_ue(index as u32, nas, guti, cause, &mut self.nodes.outbox).ok()?;
        self.devices[index].at = Some((peer, ran));
        let octets = self.nodes.outbox.pdus().next().map(|(_, octets)| octets.to_vec());
        self.nodes.outbox.clear();
        Some((peer, octets?))
    }

    /// Returns a PDU that is valid by itself.
    fn sound(&mut self, index: usize) -> Option<(usize, Vec<u8>)> {
        if chance(&mut self.rng, 60)
            && let Some((peer, ids)) = self.connection(index)
        {
            return Some((peer, self.library.about(ids, &mut self.rng)?));
        }
        let names = self.devices[index].names(self.nodes.options);
        let content = nas::mm(&names, &mut self.rng);
        self.carry(index, &content)
    }

    /// Returns a valid message at the wrong time or for the wrong UE.
    fn misplaced(&mut self, index: usize, state: State) -> Option<Message> {
        let options = self.nodes.options;
        let message = |(peer, octets)| Message { peer, octets, level: Level::Order, protected: false };
        let names = self.devices[index].names(options);
        let own = self.connection(index);
        let nth = self.rng.below(1 << 16);
        let made = match (self.rng.below(9), own) {
            (0 | 1, Some((peer, ids))) => Some((peer, self.library.about(ids, &mut self.rng)?)),
            (2, _) => {
                let foreign = self.good_ids.connection(nth)?;
                Some((nth % WITH_UES, self.library.about_foreign(foreign, &mut self.rng)?))
            }
            (3, Some((peer, ids))) => {
                let foreign = self.good_ids.connection(nth).map_or(self.rng.bits() >> 24, |ids| ids.core);
                let mixed = *pick(&mut self.rng, &[UeIds { core: foreign, ..ids }, UeIds { ran: nth as u32, ..ids }]);
                Some((peer, self.library.about_foreign(mixed, &mut self.rng)?))
            }
            (4, Some((peer, ids))) => Some(((peer + 1) % WITH_UES, self.library.about_foreign(ids, &mut self.rng)?)),
            (5, Some((peer, ids))) => {
                let old = self.devices[index].sent.get(nth % self.devices[index].sent.len().max(1))?.clone();
                Some((peer, library::uplink_nas(&self.nodes.peers[peer].node, ids, &old)?))
            }
            (6, Some((peer, ids))) if is_secured(state) && state != State::SecurityMode => {
                let plain = nas::mm(&names, &mut self.rng);
                let device = &mut self.devices[index];
                let content = device.ue.protect(header::CIPHERED, &plain)?;
                device.spoiled |= !device.deferred.is_empty();
                device.remember(&content);
                let octets = library::uplink_nas(&self.nodes.peers[peer].node, ids, &content)?;
                return Some(Message { protected: true, ..message((peer, octets)) });
            }
            (7, Some((peer, ids))) => {
                let content = nas::mm(&names, &mut self.rng);
                Some((peer, library::initial_ue(&self.nodes.peers[peer].node, ids.ran, &content, None)?))
            }
            _ => self.in_the_name_of_another(nth),
        };
        made.map(message)
    }

    /// Returns an initial message that names a good UE and does not verify under its keys.
    fn in_the_name_of_another(&mut self, nth: usize) -> Option<(usize, Vec<u8>)> {
        let guti = guti_of(self.nodes.options, self.good_ids.name(nth)?);
        let rat = self.nodes.rat;
        let guti_octets = Some(guti_octets(rat, guti));
        let names = nas::Names { guti: guti_octets, ksi: Some(0), psi: 1, sst: 1, ..nas::Names::new(rat) };
        let rng = &mut self.rng;
        let mut content = match rng.below(3) {
            0 => nas::service_request(&names, rng),
            1 => nas::registration(&names, rng),
            _ => nas::deregistration(&names, rng),
        };
        if chance(rng, 60) {
            nas::forge(&mut content, rat, rng);
        }
        let peer = nth % WITH_UES;
        // A RAN-UE-NGAP-ID that the node assigns to no UE.
        let ran = 0x00e0_0000 + (nth as u32 & 0xffff);
        Some((peer, library::initial_ue(&self.nodes.peers[peer].node, ran, &content, Some(guti))?))
    }

    /// Returns a non-UE-associated message.
    pub(super) fn make_node_message(&mut self) -> Option<Message> {
        let rng = &mut self.rng;
        let good_ids = self.good_ids.connection(rng.below(1 << 16)).unwrap_or(UeIds { core: 1, ran: 1 });
        let ids = if chance(rng, 70) { good_ids } else { UeIds { core: rng.bits() >> 24, ran: 7 } };
        let node = &self.nodes.peers[NODE].node;
        let mut octets = library::node_message(node, ids, rng)?;
        let level = *pick(rng, &[Level::Byte, Level::Asn1, Level::Asn1, Level::Order]);
        match level {
            Level::Byte => octets::mutate(&mut octets, 0, rng),
            Level::Asn1 => {
                let donor = library::node_message(node, ids, rng)?;
                octets = element::mutate(self.nodes.protocol(), &octets, &donor, rng);
            }
            _ => {}
        }
        (!octets.is_empty()).then_some(Message { peer: NODE, octets, level, protected: false })
    }

    /// Returns the node of a peer.
    pub(super) fn node(&mut self, peer: usize) -> &mut Node {
        &mut self.nodes.peers[peer].node
    }

    /// Returns true if the core has answered this connection.
    pub(super) fn is_known(&self, (peer, ran): (usize, ConnectionId)) -> bool {
        self.nodes.peers[peer].node.core_id(ran).is_some()
    }
}
