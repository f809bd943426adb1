//! Stamps of generated packets: run, thread, sequence number, time, and the mirror's packet count.

/// Length of a stamp at the beginning of the UDP payload, in octets.
pub const STAMP: usize = 32;

const MAGIC: [u8; 4] = *b"VIRT";
const SEQUENCE_BITS: u32 = 48;
const MIRRORED: usize = 24;

/// A stamp. Encoding: a magic word of 4 octets, then the fields in order as big-endian numbers of
/// 4, 2, 6, 8 and 8 octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the generator's run.
    pub run: u32,
    /// Number of the generator's thread.
    pub lane: u16,
    /// Sequence number within the thread, below 2^48.
    pub sequence: u64,
    /// Time of sending in ns of the generator's clock.
    pub time: u64,
    /// Packets of this run that the mirror has received, including this one. 0 before the mirror.
    pub mirrored: u64,
}

impl Stamp {
    /// Writes the encoded stamp.
    pub fn write(&self, to: &mut [u8; STAMP]) {
        to[..4].copy_from_slice(&MAGIC);
        to[4..8].copy_from_slice(&self.run.to_be_bytes());
        let number = u64::from(self.lane) << SEQUENCE_BITS | self.sequence & ((1 << SEQUENCE_BITS) - 1);
        to[8..16].copy_from_slice(&number.to_be_bytes());
        to[16..MIRRORED].copy_from_slice(&self.time.to_be_bytes());
        to[MIRRORED..].copy_from_slice(&self.mirrored.to_be_bytes());
    }

    /// Parses the stamp at the beginning of a payload. Returns `None` if there is none.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let octets: &[u8; STAMP] = payload.first_chunk()?;
        let (words, _) = octets.as_chunks::<8>();
        let [first, number, time, mirrored] = *words else { return None };
        let [magic @ .., r1, r2, r3, r4] = first;
        let number = u64::from_be_bytes(number);
        (magic == MAGIC).then(|| Stamp {
            run: u32::from_be_bytes([r1, r2, r3, r4]),
            lane: (number >> SEQUENCE_BITS) as u16,
            sequence: number & ((1 << SEQUENCE_BITS) - 1),
            time: u64::from_be_bytes(time),
            mirrored: u64::from_be_bytes(mirrored),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamp_identifies_own_packets() {
        let stamp = Stamp { run: 7, lane: 3, sequence: (1 << 48) - 1, time: 9, mirrored: 11 };
        let mut octets = [0; STAMP];
        stamp.write(&mut octets);
        assert_eq!(octets[..16], *b"VIRT\0\0\0\x07\0\x03\xff\xff\xff\xff\xff\xff");
        assert_eq!(Stamp::read(&[&octets[..], &[0; 9]].concat()), Some(stamp));
        assert_eq!(Stamp::read(&octets[..31]), None);
        octets[0] = 0;
        assert_eq!(Stamp::read(&octets), None);
    }
}
