//! Internet checksum (RFC 1071).

/// Sum before the carries are folded.
#[derive(Clone, Copy, Default)]
pub(super) struct Sum(u32);

impl Sum {
    /// Adds octets; pads an odd last one with zero.
    pub(super) fn add(mut self, octets: &[u8]) -> Self {
        let mut pairs = octets.chunks_exact(2);
        for pair in &mut pairs {
            self.0 += u32::from(u16::from_be_bytes([pair[0], pair[1]]));
            self.0 = (self.0 & 0xffff) + (self.0 >> 16);
        }
        if let [last] = pairs.remainder() {
            self.0 += u32::from(*last) << 8;
        }
        self
    }

    /// Returns the checksum.
    pub(super) fn finish(self) -> u16 {
        let folded = (self.0 & 0xffff) + (self.0 >> 16);
        !(((folded & 0xffff) + (folded >> 16)) as u16)
    }
}
