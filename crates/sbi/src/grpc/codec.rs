//! tonic codec for encoded messages.

use bytes::{Buf, BufMut, Bytes};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Codec that passes bytes unchanged. The messages are encoded and decoded elsewhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Octets;

impl Codec for Octets {
    type Encode = Vec<u8>;
    type Decode = Bytes;
    type Encoder = Octets;
    type Decoder = Octets;

    fn encoder(&mut self) -> Octets {
        Octets
    }

    fn decoder(&mut self) -> Octets {
        Octets
    }
}

impl Encoder for Octets {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, octets: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&octets);
        Ok(())
    }
}

impl Decoder for Octets {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
