//! One mutated message for the state of one UE.

use super::device::{ATTACKERS, Device};
use super::dice::{chance, pick};
use super::good::GoodIds;
use super::ngap::{self, Ids, Library};
use super::peer::{NODE, WITH_UES};
use super::report::{Depth, Level, State};
use super::{asn1, nas, octets};
use crate::error::Error;
use crate::gnb::Gnb;
use crate::gnb_set::GnbSet;
use crate::load::Rng;
use crate::options::Options;
use crate::progress::EndpointFactory;
use crate::ue::security::header;
use vireo_types::{Guami, Guti, RanUeNgapId, Tmsi};
use vireo_wire::nas::Nas5gsMessage;
use vireo_wire::ngap::{NGAP_PDU, RRCEstablishmentCause, ie};

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
pub(super) fn depth(message: &Message) -> Depth {
    if !asn1::decodes(&message.octets) {
        return Depth::Transport;
    }
    if message.protected {
        return Depth::Protected;
    }
    let pdu = NGAP_PDU::decode_borrowed(&message.octets).ok();
    let nas = pdu.as_ref().and_then(|pdu| pdu.ie::<ie::NAS_PDU>()?.ok());
    match nas.map(|nas| Nas5gsMessage::decode(&nas.0)) {
        Some(Ok(Nas5gsMessage::Gmm(..))) => Depth::Nas,
        _ => Depth::Asn1,
    }
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
    let mut out = Vec::new();
    let security = device.ue.security()?;
    match state {
        State::Idle => {
            let request = match rng.below(4) {
                0 => nas::registration(&names, rng),
                1 => nas::deregistration(&names, rng),
                _ => nas::service_request(&names, rng),
            };
            let (mut clear, mut whole) = (request.clone(), request);
            nas::mutate(if chance(rng, 40) { &mut clear } else { &mut whole }, rng);
            if chance(rng, 80) {
                security.protect_initial(&clear, &whole, &mut out).ok()?;
            } else {
                security.protect(header::INTEGRITY, &clear, &mut out).ok()?;
            }
        }
        State::SecurityMode => {
            let mut plain = nas::security_mode_complete(&names, rng);
            if chance(rng, 80) {
                nas::mutate(&mut plain, rng);
            }
            security.protect(header::NEW_CIPHERED, &plain, &mut out).ok()?;
        }
        _ => security.protect(header::CIPHERED, &nas::inner(&names, rng), &mut out).ok()?,
    }
    device.spoiled |= !device.deferred.is_empty();
    device.remember(&out);
    Some(out)
}

/// Attacking gNBs and UEs with their knowledge.
pub(super) struct Attackers<'a> {
    pub(super) gnbs: GnbSet<'a>,
    pub(super) devices: Vec<Device>,
    pub(super) library: Library,
    pub(super) rng: Rng,
    pub(super) good_ids: &'a GoodIds,
}

impl<'a> Attackers<'a> {
    /// Sets the gNBs up; the UEs are switched off.
    ///
    /// # Errors
    ///
    /// Returns an error if the core does not accept a gNB, or if there are too few subscribers.
    pub(super) fn new(options: &'a Options, open: EndpointFactory<'_>, good_ids: &'a GoodIds) -> Result<Self, Error> {
        let gnbs = GnbSet::attackers(options, open)?;
        let library = Library::new(&gnbs.peers[0].gnb, gnbs.peers[1].gnb.config());
        let devices = (0..ATTACKERS).map(|n| Device::new(options, options.ues + n)).collect::<Result<_, _>>()?;
        Ok(Attackers { gnbs, devices, library, rng: Rng::new(options.seed), good_ids })
    }

    /// Returns a message of this UE for its state.
    pub(super) fn make(&mut self, index: usize, state: State) -> Option<Message> {
        let has_keys = self.devices[index].ue.security().is_some();
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
                Some(plain(asn1::mutate(&octets, donor, &mut self.rng), peer))
            }
            Level::Nas => {
                let names = self.devices[index].names(self.gnbs.options);
                let mut content = match chance(&mut self.rng, 20) {
                    true => nas::transport(&nas::gsm(&names, &mut self.rng), &names, &mut self.rng),
                    false => nas::gmm(&names, &mut self.rng),
                };
                nas::mutate(&mut content, &mut self.rng);
                let (peer, octets) = self.carry(index, &content)?;
                Some(plain(octets, peer))
            }
            Level::Protected => {
                let options = self.gnbs.options;
                let content = protect(&mut self.devices[index], options, state, &mut self.rng)?;
                let (peer, octets) = self.carry(index, &content)?;
                Some(Message { protected: true, ..plain(octets, peer) })
            }
            Level::Order => self.misplaced(index, state),
        }
    }

    /// Returns the UE's connection; during a handover, either of the two.
    fn connection(&mut self, index: usize) -> Option<(usize, Ids)> {
        let device = &self.devices[index];
        let (peer, ran) = match device.target {
            Some(target) if chance(&mut self.rng, 40) => target,
            _ => device.at?,
        };
        Some((peer, ngap::ids_of(&self.gnbs.peers[peer].gnb, ran)?))
    }

    /// Returns a valid PDU with this NAS, for the UE's connection or a new one.
    fn carry(&mut self, index: usize, nas: &[u8]) -> Option<(usize, Vec<u8>)> {
        if let Some((peer, ids)) = self.connection(index) {
            return Some((peer, ngap::uplink_nas(&self.gnbs.peers[peer].gnb, ids, nas)?));
        }
        if self.devices[index].at.is_some() {
            return None;
        }
        let (peer, guti) = (index % WITH_UES, self.devices[index].ue.guti());
        let causes = [RRCEstablishmentCause::mo_Signalling, RRCEstablishmentCause::mo_Data];
        let cause = *pick(&mut self.rng, &causes);
        self.gnbs.outbox.clear();
        let gnb = &mut self.gnbs.peers[peer].gnb;
        let ran = gnb.initial_ue(index as u32, nas, guti, cause, &mut self.gnbs.outbox).ok()?;
        self.devices[index].at = Some((peer, ran));
        let octets = self.gnbs.outbox.pdus().next().map(|(_, octets)| octets.to_vec());
        self.gnbs.outbox.clear();
        Some((peer, octets?))
    }

    /// Returns a PDU that is valid by itself.
    fn sound(&mut self, index: usize) -> Option<(usize, Vec<u8>)> {
        if chance(&mut self.rng, 60)
            && let Some((peer, ids)) = self.connection(index)
        {
            return Some((peer, self.library.about(ids, &mut self.rng)?));
        }
        let names = self.devices[index].names(self.gnbs.options);
        let content = nas::gmm(&names, &mut self.rng);
        self.carry(index, &content)
    }

    /// Returns a valid message at the wrong time or for the wrong UE.
    fn misplaced(&mut self, index: usize, state: State) -> Option<Message> {
        let options = self.gnbs.options;
        let message = |(peer, octets)| Message { peer, octets, level: Level::Order, protected: false };
        let names = self.devices[index].names(options);
        let own = self.connection(index);
        let nth = self.rng.below(1 << 16);
        let made = match (self.rng.below(9), own) {
            (0 | 1, Some((peer, ids))) => Some((peer, self.library.about(ids, &mut self.rng)?)),
            (2, _) => {
                let (amf, ran) = self.good_ids.connection(nth)?;
                Some((nth % WITH_UES, self.library.about_foreign(Ids { amf, ran }, &mut self.rng)?))
            }
            (3, Some((peer, ids))) => {
                let foreign = self.good_ids.connection(nth).map_or(self.rng.bits() >> 24, |(amf, _)| amf);
                let mixed = *pick(&mut self.rng, &[Ids { amf: foreign, ..ids }, Ids { ran: nth as u32, ..ids }]);
                Some((peer, self.library.about_foreign(mixed, &mut self.rng)?))
            }
            (4, Some((peer, ids))) => Some(((peer + 1) % WITH_UES, self.library.about_foreign(ids, &mut self.rng)?)),
            (5, Some((peer, ids))) => {
                let old = self.devices[index].sent.get(nth % self.devices[index].sent.len().max(1))?.clone();
                Some((peer, ngap::uplink_nas(&self.gnbs.peers[peer].gnb, ids, &old)?))
            }
            (6, Some((peer, ids))) if is_secured(state) && state != State::SecurityMode => {
                let plain = nas::gmm(&names, &mut self.rng);
                let mut content = Vec::new();
                let device = &mut self.devices[index];
                device.ue.security()?.protect(header::CIPHERED, &plain, &mut content).ok()?;
                device.spoiled |= !device.deferred.is_empty();
                device.remember(&content);
                let octets = ngap::uplink_nas(&self.gnbs.peers[peer].gnb, ids, &content)?;
                return Some(Message { protected: true, ..message((peer, octets)) });
            }
            (7, Some((peer, ids))) => {
                let content = nas::gmm(&names, &mut self.rng);
                Some((peer, ngap::initial_ue(self.gnbs.peers[peer].gnb.config(), ids.ran, &content, None)?))
            }
            _ => self.in_the_name_of_another(nth),
        };
        made.map(message)
    }

    /// Returns an initial message that names a good UE and does not verify under its keys.
    fn in_the_name_of_another(&mut self, nth: usize) -> Option<(usize, Vec<u8>)> {
        let guti = guti_of(self.gnbs.options, self.good_ids.name(nth)?);
        let octets = crate::ue::nas::guti_octets(guti);
        let names = nas::Names { guti: Some(octets), ksi: Some(0), psi: 1, sst: 1, ..nas::Names::default() };
        let rng = &mut self.rng;
        let mut content = match rng.below(3) {
            0 => nas::service_request(&names, rng),
            1 => nas::registration(&names, rng),
            _ => nas::deregistration(&names, rng),
        };
        if chance(rng, 60) {
            let forged = [0x7e, header::INTEGRITY, 0xde, 0xad, 0xbe, 0xef, rng.bits() as u8];
            content.splice(0..0, forged);
        }
        let peer = nth % WITH_UES;
        // A RAN-UE-NGAP-ID that the gNB assigns to no UE.
        let ran = 0x00e0_0000 + (nth as u32 & 0xffff);
        Some((peer, ngap::initial_ue(self.gnbs.peers[peer].gnb.config(), ran, &content, Some(guti))?))
    }

    /// Returns a non-UE-associated message.
    pub(super) fn make_node_message(&mut self) -> Option<Message> {
        let rng = &mut self.rng;
        let good_ids = self.good_ids.connection(rng.below(1 << 16)).unwrap_or((1, 1));
        let ids = if chance(rng, 70) {
            Ids { amf: good_ids.0, ran: good_ids.1 }
        } else {
            Ids { amf: rng.bits() >> 24, ran: 7 }
        };
        let mut octets = ngap::node_message(self.gnbs.peers[NODE].gnb.config(), ids, rng)?;
        let level = *pick(rng, &[Level::Byte, Level::Asn1, Level::Asn1, Level::Order]);
        match level {
            Level::Byte => octets::mutate(&mut octets, 0, rng),
            Level::Asn1 => {
                let donor = ngap::node_message(self.gnbs.peers[NODE].gnb.config(), ids, rng)?;
                octets = asn1::mutate(&octets, &donor, rng);
            }
            _ => {}
        }
        (!octets.is_empty()).then_some(Message { peer: NODE, octets, level, protected: false })
    }

    /// Returns the gNB of a peer.
    pub(super) fn gnb(&mut self, peer: usize) -> &mut Gnb {
        &mut self.gnbs.peers[peer].gnb
    }

    /// Returns true if the core has answered this connection.
    pub(super) fn is_known(&self, (peer, ran): (usize, RanUeNgapId)) -> bool {
        self.gnbs.peers[peer].gnb.amf_id(ran).is_some()
    }
}
