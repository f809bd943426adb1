//! PFCP messages as trees of information elements, which need not be meaningful.

use rand::Rng;
use rand::rngs::SmallRng;
use vireo_wire::pfcp::{Builder, Ies, Message, MessageType};

/// Grouped elements (TS 29.244 table 8.1.2-1) that a UPF parses.
const GROUPS: [u16; 29] =
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 51, 54, 58, 59, 68, 77, 78, 85, 86, 87, 99];
/// Maximum nesting depth that is parsed.
const DEPTH: usize = 4;
/// Maximum length of a mutated message in octets, below the maximum of a datagram.
pub(super) const LONGEST: usize = 60_000;

/// An information element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) id: u16,
    pub(super) content: Content,
}

/// Octets of an element, or the members of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Octets(Vec<u8>),
    Group(Vec<Element>),
}

impl Element {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut octets = Vec::new();
        match &self.content {
            Content::Octets(own) => octets.extend_from_slice(own),
            Content::Group(members) => members.iter().for_each(|member| member.encode(&mut octets)),
        }
        octets.truncate(LONGEST);
        out.extend_from_slice(&self.id.to_be_bytes());
        out.extend_from_slice(&(octets.len() as u16).to_be_bytes());
        out.extend_from_slice(&octets);
    }
}

/// A decoded message for mutation.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub(super) kind: MessageType,
    pub(super) seid: Option<u64>,
    pub(super) elements: Vec<Element>,
}

impl Tree {
    /// Parses a valid message.
    pub(super) fn read(octets: &[u8]) -> Option<Self> {
        let message = Message::new(octets).ok()?;
        let elements = elements(message.ies(), DEPTH);
        Some(Tree { kind: message.message_type(), seid: message.header().seid, elements })
    }

    /// Encodes the message. Elements beyond [`LONGEST`] are omitted.
    pub(super) fn write(&self, sequence: u32) -> Vec<u8> {
        let mut out = Vec::new();
        let mut builder = Builder::new(&mut out, self.kind, self.seid, sequence);
        let mut length = 0;
        for element in &self.elements {
            let mut octets = Vec::new();
            element.encode(&mut octets);
            length += octets.len();
            if length > LONGEST {
                break;
            }
            builder.put_raw(element.id, &octets[4..]);
        }
        // Shorter than [`LONGEST`], so it always fits.
        let _ = builder.finish();
        out
    }

    /// Changes one element anywhere in the tree. `others` are elements of other messages.
    pub(super) fn mutate(&mut self, rng: &mut SmallRng, others: &[Element]) {
        change_list(&mut self.elements, rng, others, 0);
    }
}

fn elements(ies: Ies<'_>, depth: usize) -> Vec<Element> {
    let read = |ie: vireo_wire::pfcp::Ie<'_>| {
        let content = match GROUPS.contains(&ie.id) && depth > 0 {
            true => Content::Group(elements(ie.ies(), depth - 1)),
            false => Content::Octets(ie.value.to_vec()),
        };
        Element { id: ie.id, content }
    };
    ies.flatten().map(read).collect()
}

fn change_list(list: &mut Vec<Element>, rng: &mut SmallRng, others: &[Element], depth: usize) {
    if list.is_empty() {
        list.extend(random_of(others, rng));
        return;
    }
    let at = rng.random_range(0..list.len());
    // Deeper elements outnumber those above them.
    if let Content::Group(members) = &mut list[at].content
        && rng.random_bool(0.7)
        && depth < DEPTH
    {
        return change_list(members, rng, others, depth + 1);
    }
    match rng.random_range(0..10) {
        0 => drop(list.remove(at)),
        1 => list.push(list[at].clone()),
        2 => {
            let other = rng.random_range(0..list.len());
            list.swap(at, other);
        }
        3 => list.extend(random_of(others, rng)),
        4 => {
            // Many copies of one element.
            let copies = 1_usize << rng.random_range(1..8);
            let one = list[at].clone();
            list.extend(std::iter::repeat_n(one, copies));
        }
        5 => {
            list[at].id = *[rng.random_range(1..300), GROUPS[rng.random_range(0..GROUPS.len())], rng.random()]
                .get(rng.random_range(0..3))
                .unwrap_or(&0)
        }
        6 => {
            let inner = list.remove(at);
            let id = GROUPS[rng.random_range(0..GROUPS.len())];
            list.push(Element { id, content: Content::Group(vec![inner]) });
        }
        _ => change_content(&mut list[at].content, rng),
    }
}

fn random_of(others: &[Element], rng: &mut SmallRng) -> Option<Element> {
    if others.is_empty() { None } else { Some(others[rng.random_range(0..others.len())].clone()) }
}

fn change_content(content: &mut Content, rng: &mut SmallRng) {
    let mut octets = match std::mem::replace(content, Content::Octets(Vec::new())) {
        Content::Octets(octets) => octets,
        Content::Group(members) => {
            let mut octets = Vec::new();
            members.iter().for_each(|member| member.encode(&mut octets));
            octets
        }
    };
    let length = octets.len();
    match rng.random_range(0..7) {
        0 => octets.iter_mut().for_each(|octet| *octet = 0xff),
        1 => octets.iter_mut().for_each(|octet| *octet = 0),
        2 => octets.truncate(rng.random_range(0..=length)),
        3 => octets.extend((0..rng.random_range(1..300)).map(|_| rng.random::<u8>())),
        4 => octets = (0..rng.random_range(0..40)).map(|_| rng.random()).collect(),
        _ if length > 0 => {
            let at = rng.random_range(0..length);
            octets[at] ^= 1 << rng.random_range(0..8);
        }
        _ => {}
    }
    *content = Content::Octets(octets);
}

/// Changes octets at any position of an encoded message.
pub(super) fn mutate_octets(octets: &mut Vec<u8>, rng: &mut SmallRng) {
    for _ in 0..rng.random_range(1..4) {
        let length = octets.len();
        match rng.random_range(0..7) {
            _ if length == 0 => octets.push(rng.random()),
            0 => octets.truncate(rng.random_range(0..length)),
            1 => {
                let at = rng.random_range(0..=length);
                octets.splice(at..at, (0..rng.random_range(1..20)).map(|_| rng.random::<u8>()));
            }
            2 => octets[rng.random_range(0..length.min(16))] = rng.random(),
            3 => {
                let from = rng.random_range(0..length);
                let end = (from + rng.random_range(1..20)).min(length);
                octets.drain(from..end);
            }
            _ => octets[rng.random_range(0..length)] = rng.random(),
        }
    }
    octets.truncate(LONGEST);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use vireo_wire::pfcp::*;

    fn sample() -> Vec<u8> {
        let mut request = SessionEstablishmentRequest::new(
            NodeId::fqdn("smf").expect("a name"),
            FSeid::new(7, std::net::Ipv4Addr::LOCALHOST.into()),
        );
        request.create_fars.push(CreateFar {
            far_id: FarId(1),
            apply_action: ApplyAction::DROP,
            ..CreateFar::default()
        });
        let mut octets = Vec::new();
        request.emit(&mut octets, 0, 9).expect("short");
        octets
    }

    #[test]
    fn trees_are_written_as_they_were_read() {
        let octets = sample();
        let tree = Tree::read(&octets).expect("sound");
        assert_eq!((tree.write(9), tree.elements.len()), (octets, 3));
        assert!(matches!(tree.elements[2].content, Content::Group(_)));
    }

    #[test]
    fn mutated_trees_are_messages_and_differ() {
        let (mut rng, octets) = (SmallRng::seed_from_u64(7), sample());
        let others = Tree::read(&octets).expect("sound").elements;
        let mut changed = 0;
        for n in 0..2_000 {
            let mut tree = Tree::read(&octets).expect("sound");
            tree.mutate(&mut rng, &others);
            let written = tree.write(9);
            assert!(Message::new(&written).is_ok(), "the header is right whatever the elements are");
            changed += usize::from(written != octets);
            let mut raw = octets.clone();
            mutate_octets(&mut raw, &mut rng);
            assert!(raw.len() < LONGEST, "{n}");
        }
        assert!(changed > 1_800, "{changed} of 2,000");
    }
}
