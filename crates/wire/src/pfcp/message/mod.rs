//! PFCP messages (TS 29.244 7.4 and 7.5) as values, one family per file.

mod association;
mod deletion;
mod establishment;
mod heartbeat;
mod modification;
mod node;
mod report;

pub use association::*;
pub use deletion::*;
pub use establishment::*;
pub use heartbeat::*;
pub use modification::*;
pub use node::*;
pub use report::*;

use super::{Builder, Error, Message, MessageType};

/// A message as a value.
pub trait Body: Sized {
    /// The type of the message.
    const KIND: MessageType;

    /// Parses a received message. Unknown elements are skipped.
    ///
    /// # Errors
    ///
    /// Returns an error if a mandatory element is missing, or any known element is malformed, even
    /// an optional one. A partly parsed rule would forward the wrong packets.
    fn parse(message: &Message<'_>) -> Result<Self, Error>;

    /// Appends the encoded elements.
    fn write(&self, builder: &mut Builder<'_>);
}

/// Defines message structs: `session` ones are encoded with a SEID, `node` ones without.
macro_rules! messages {
    ($($(#[$m:meta])* $family:ident $name:ident = $kind:ident $(, check $check:path)? {
        $($(#[$fm:meta])* $field:ident: $ty:ty,)*
    })*) => {$(
        $(#[$m])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$fm])* pub $field: $ty,)* }

        impl $crate::pfcp::Body for $name {
            const KIND: $crate::pfcp::MessageType = $crate::pfcp::MessageType::$kind;

            fn parse(message: &$crate::pfcp::Message<'_>) -> Result<Self, $crate::pfcp::Error> {
                #[allow(unused_imports)]
                use $crate::pfcp::ie::Field;
                if message.message_type() != Self::KIND {
                    return Err($crate::pfcp::Error::wrong_type());
                }
                $(let mut $field = <$ty as Field>::Slot::default();)*
                for ie in message.ies() {
                    let ie = ie?;
                    match ie.id {
                        $(<$ty as Field>::ID => <$ty as Field>::fill(&mut $field, &ie)?,)*
                        _ => {}
                    }
                }
                let parsed = $name { $($field: <$ty as Field>::take($field)?,)* };
                $($check(&parsed)?;)?
                Ok(parsed)
            }

            fn write(&self, builder: &mut $crate::pfcp::Builder<'_>) {
                #[allow(unused_imports)]
                use $crate::pfcp::ie::Field;
                let _out = builder.buffer();
                $(self.$field.write(_out);)*
            }
        }

        $crate::pfcp::message::emit!($family $name);
    )*};
}

macro_rules! emit {
    (session $name:ident) => {
        impl $name {
            /// Parses a received message; see [`Body::parse`](crate::pfcp::Body::parse).
            pub fn parse(message: &$crate::pfcp::Message<'_>) -> Result<Self, $crate::pfcp::Error> {
                <Self as $crate::pfcp::Body>::parse(message)
            }

            /// Appends the encoded message to a buffer. `seid` is the receiver's SEID, 0 while
            /// unknown.
            pub fn emit(&self, out: &mut Vec<u8>, seid: u64, sequence: u32) -> Result<(), $crate::pfcp::TooLong> {
                use $crate::pfcp::Body;
                let mut builder = $crate::pfcp::Builder::new(out, Self::KIND, Some(seid), sequence);
                self.write(&mut builder);
                builder.finish()
            }
        }
    };
    (node $name:ident) => {
        impl $name {
            /// Parses a received message; see [`Body::parse`](crate::pfcp::Body::parse).
            pub fn parse(message: &$crate::pfcp::Message<'_>) -> Result<Self, $crate::pfcp::Error> {
                <Self as $crate::pfcp::Body>::parse(message)
            }

            /// Appends the encoded message to a buffer.
            pub fn emit(&self, out: &mut Vec<u8>, sequence: u32) -> Result<(), $crate::pfcp::TooLong> {
                use $crate::pfcp::Body;
                let mut builder = $crate::pfcp::Builder::new(out, Self::KIND, None, sequence);
                self.write(&mut builder);
                builder.finish()
            }
        }
    };
}

pub(super) use emit;
pub(super) use messages;
