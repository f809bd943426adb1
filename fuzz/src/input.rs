//! Octets as a script: input of a stateful target.
//!
//! A script has single octets and length-prefixed pieces.

/// Reader of a script; past its end every number is 0 and every piece empty.
#[derive(Debug)]
pub struct Script<'a>(pub &'a [u8]);

impl<'a> Script<'a> {
    /// Returns true if the script is used up.
    pub fn is_done(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next octet.
    pub fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().map_or((0, &[][..]), |(first, rest)| (*first, rest));
        self.0 = rest;
        first
    }

    /// Returns the next piece: a length octet, then at most as many octets as remain.
    pub fn piece(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        let (piece, rest) = self.0.split_at(length);
        self.0 = rest;
        piece
    }
}

/// Encodes a script, for seeds.
pub fn script(steps: &[(u8, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (step, piece) in steps {
        out.push(*step);
        out.push(u8::try_from(piece.len()).expect("a seed's piece is short"));
        out.extend_from_slice(piece);
    }
    out
}
