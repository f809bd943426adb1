//! CRC32c of an SCTP packet (RFC 9260 6.8 and Appendix A).
//!
//! It uses the processor's instruction where available.

/// Bytes of the checksum in the common header.
const FIELD: std::ops::Range<usize> = 8..12;

fn compute(packet: &[u8]) -> Option<[u8; 4]> {
    let before = crc32c::crc32c(packet.get(..FIELD.start)?);
    let field = crc32c::crc32c_append(before, &[0; 4]);
    Some(crc32c::crc32c_append(field, packet.get(FIELD.end..)?).to_le_bytes())
}

/// Writes the checksum into a packet. A packet shorter than the header stays unchanged.
pub(super) fn write(packet: &mut [u8]) {
    if let Some(sum) = compute(packet) {
        packet[FIELD].copy_from_slice(&sum);
    }
}

/// Returns true if a packet has the correct checksum.
pub(super) fn is_right(packet: &[u8]) -> bool {
    compute(packet).is_some_and(|sum| packet[FIELD] == sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes CRC32c bit by bit, as RFC 9260 Appendix A defines it.
    fn reference(packet: &[u8]) -> [u8; 4] {
        let mut crc = u32::MAX;
        for byte in packet {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            }
        }
        (!crc).to_le_bytes()
    }

    #[test]
    fn checksum_covers_zeroed_field() {
        assert_eq!(reference(b"123456789"), 0xe306_9283_u32.to_le_bytes(), "the catalogued check value");
        for length in 12..600_usize {
            let mut packet: Vec<u8> = (0..length).map(|at| (at * 7 + length) as u8).collect();
            packet[FIELD].fill(0);
            let want = reference(&packet);
            write(&mut packet);
            assert_eq!(packet[FIELD], want, "{length}");
            assert!(is_right(&packet));
            packet[length / 2] ^= 0x10;
            assert!(!is_right(&packet));
        }
        assert!(!is_right(&[0; 11]) && !is_right(&[]));
    }
}
