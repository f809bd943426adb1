use super::Error;
use smallvec::SmallVec;
use std::net::{Ipv4Addr, Ipv6Addr};

/// List of elements of one type; up to `N` need no allocation.
pub type List<T, const N: usize> = SmallVec<[T; N]>;

/// An information element in place (TS 29.244 8.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ie<'a> {
    /// Type of the element; values from 32768 are vendor-specific.
    pub id: u16,
    /// Content, without the Enterprise ID.
    pub value: &'a [u8],
    /// Enterprise ID of a vendor-specific type.
    pub enterprise: Option<u16>,
}

impl<'a> Ie<'a> {
    /// Decodes the content as `T`, which the caller selects by [`Ie::id`].
    pub fn read<T: Element>(&self) -> Result<T, Error> {
        T::decode(self.value)
    }

    /// Returns an iterator over the members of a grouped element.
    pub fn ies(&self) -> Ies<'a> {
        Ies::new(self.value)
    }
}

/// Iterator over the elements of a message or of a grouped element. It ends after the first
/// malformed one.
#[derive(Clone, Debug)]
pub struct Ies<'a> {
    rest: &'a [u8],
}

const VENDOR: u16 = 0x8000;

impl<'a> Ies<'a> {
    /// Creates an iterator over the elements in `octets`.
    pub const fn new(octets: &'a [u8]) -> Self {
        Ies { rest: octets }
    }

    fn split(&mut self) -> Result<Ie<'a>, Error> {
        let octets = std::mem::take(&mut self.rest);
        let Some((&[t1, t2, l1, l2], rest)) = octets.split_first_chunk() else {
            let id = octets.first_chunk().map_or(0, |id| u16::from_be_bytes(*id));
            return Err(Error::length(id));
        };
        let id = u16::from_be_bytes([t1, t2]);
        let length = usize::from(u16::from_be_bytes([l1, l2]));
        let (value, rest) = rest.split_at_checked(length).ok_or(Error::length(id))?;
        let (enterprise, value) = if id & VENDOR == 0 {
            (None, value)
        } else {
            let (enterprise, value) = value.split_first_chunk().ok_or(Error::length(id))?;
            (Some(u16::from_be_bytes(*enterprise)), value)
        };
        self.rest = rest;
        Ok(Ie { id, value, enterprise })
    }
}

impl<'a> Iterator for Ies<'a> {
    type Item = Result<Ie<'a>, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() { None } else { Some(self.split()) }
    }
}

/// An information element as a value.
///
/// `decode` accepts surplus octets, because later releases append (TS 29.244 8.1.1), and inverts
/// `encode`.
pub trait Element: Sized {
    /// The element's type (TS 29.244 table 8.1.2-1).
    const ID: u16;

    /// Decodes the content.
    fn decode(octets: &[u8]) -> Result<Self, Error>;

    /// Appends the encoded content.
    fn encode(&self, out: &mut Vec<u8>);

    /// Decodes the content into a value made by [`Element::initial`] or `Default`. Grouped elements
    /// are decoded in place, member by member, if moving them costs more than decoding.
    #[inline]
    fn decode_into(&mut self, octets: &[u8]) -> Result<(), Error> {
        *self = Self::decode(octets)?;
        Ok(())
    }

    /// Returns an initial value for [`Element::decode_into`], or `None` for elements that are cheap
    /// to move.
    #[inline]
    fn initial() -> Option<Self> {
        None
    }
}

/// Appends the element's type, length and content.
pub(super) fn put<T: Element>(out: &mut Vec<u8>, element: &T) {
    let at = open(out, T::ID);
    element.encode(out);
    close(out, at);
}

/// Starts an element whose length is not known yet.
pub(super) fn open(out: &mut Vec<u8>, id: u16) -> usize {
    let [t1, t2] = id.to_be_bytes();
    out.extend_from_slice(&[t1, t2, 0, 0]);
    out.len()
}

/// Sets the length of the element whose content starts at `at`. A length above 16 bits makes the
/// whole message too long, which [`super::Builder::finish`] reports.
pub(super) fn close(out: &mut [u8], at: usize) {
    let length = (out.len() - at) as u16;
    out[at - 2..at].copy_from_slice(&length.to_be_bytes());
}

/// Number of occurrences of an element in its group or message: one for `T`, at most one for
/// `Option<T>`, any number for `List` and `Vec`. Of needless repetitions the first counts (TS
/// 29.244 7.6.10).
pub(super) trait Field: Sized {
    /// The type of the element.
    const ID: u16;
    /// Value collected while the elements of a message are parsed.
    type Slot: Default;

    /// Decodes an element into a slot.
    fn fill(slot: &mut Self::Slot, ie: &Ie<'_>) -> Result<(), Error>;
    /// Returns the collected value, or an error if a required element is missing.
    fn take(slot: Self::Slot) -> Result<Self, Error>;
    /// Decodes an element into the field of a group. `seen` is true if there was one before, and is
    /// set.
    fn decode_field(&mut self, seen: &mut bool, ie: &Ie<'_>) -> Result<(), Error>;
    /// Returns an error if the element is required and was not `seen`.
    fn check(seen: bool) -> Result<(), Error>;
    fn write(&self, out: &mut Vec<u8>);
}

impl<T: Element> Field for T {
    const ID: u16 = T::ID;
    type Slot = Option<T>;

    #[inline]
    fn fill(slot: &mut Option<T>, ie: &Ie<'_>) -> Result<(), Error> {
        match (&slot, T::initial()) {
            (Some(_), _) => Ok(()),
            (None, Some(initial)) => slot.insert(initial).decode_into(ie.value),
            (None, None) => {
                *slot = Some(ie.read()?);
                Ok(())
            }
        }
    }

    #[inline]
    fn take(slot: Option<T>) -> Result<T, Error> {
        slot.ok_or(Error::missing(T::ID))
    }

    #[inline]
    fn decode_field(&mut self, seen: &mut bool, ie: &Ie<'_>) -> Result<(), Error> {
        if std::mem::replace(seen, true) { Ok(()) } else { self.decode_into(ie.value) }
    }

    #[inline]
    fn check(seen: bool) -> Result<(), Error> {
        if seen { Ok(()) } else { Err(Error::missing(T::ID)) }
    }

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        put(out, self);
    }
}

impl<T: Element> Field for Option<T> {
    const ID: u16 = T::ID;
    type Slot = Option<T>;

    #[inline]
    fn fill(slot: &mut Option<T>, ie: &Ie<'_>) -> Result<(), Error> {
        T::fill(slot, ie)
    }

    #[inline]
    fn take(slot: Option<T>) -> Result<Option<T>, Error> {
        Ok(slot)
    }

    #[inline]
    fn decode_field(&mut self, _seen: &mut bool, ie: &Ie<'_>) -> Result<(), Error> {
        T::fill(self, ie)
    }

    #[inline]
    fn check(_seen: bool) -> Result<(), Error> {
        Ok(())
    }

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        if let Some(element) = self {
            put(out, element);
        }
    }
}

/// Implements the two kinds of list, which differ only in their type.
macro_rules! list_field {
    ([$($bounds:tt)*] $list:ty) => {
        impl<T: Element $($bounds)*> Field for $list {
            const ID: u16 = T::ID;
            type Slot = $list;

            #[inline]
            fn fill(slot: &mut $list, ie: &Ie<'_>) -> Result<(), Error> {
                let Some(initial) = T::initial() else {
                    slot.push(ie.read()?);
                    return Ok(());
                };
                slot.push(initial);
                slot.last_mut().map_or(Ok(()), |last| last.decode_into(ie.value))
            }

            #[inline]
            fn take(slot: $list) -> Result<$list, Error> {
                Ok(slot)
            }

            #[inline]
            fn decode_field(&mut self, _seen: &mut bool, ie: &Ie<'_>) -> Result<(), Error> {
                Self::fill(self, ie)
            }

            #[inline]
            fn check(_seen: bool) -> Result<(), Error> {
                Ok(())
            }

            #[inline]
            fn write(&self, out: &mut Vec<u8>) {
                self.iter().for_each(|element| put(out, element));
            }
        }
    };
}

list_field!([, const N: usize] List<T, N>);
list_field!([] Vec<T>);

/// Defines grouped elements (TS 29.244 8.1.1) with one field per member; unknown members are
/// skipped.
macro_rules! group {
    ($($(#[$m:meta])* $name:ident = $id:literal { $($(#[$fm:meta])* $field:ident: $ty:ty,)* })*) => {$(
        $(#[$m])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$fm])* pub $field: $ty,)* }

        impl $crate::pfcp::Element for $name {
            const ID: u16 = $id;

            fn decode(octets: &[u8]) -> Result<Self, $crate::pfcp::Error> {
                let mut value = $name::default();
                value.decode_into(octets).map(|()| value)
            }

            fn decode_into(&mut self, octets: &[u8]) -> Result<(), $crate::pfcp::Error> {
                use $crate::pfcp::ie::Field;
                $(let mut $field = false;)*
                for ie in $crate::pfcp::Ies::new(octets) {
                    let ie = ie?;
                    match ie.id {
                        $(<$ty as Field>::ID => self.$field.decode_field(&mut $field, &ie)?,)*
                        _ => {}
                    }
                }
                $(<$ty as Field>::check($field)?;)*
                Ok(())
            }

            #[inline]
            fn initial() -> Option<Self> {
                Some($name::default())
            }

            fn encode(&self, out: &mut Vec<u8>) {
                use $crate::pfcp::ie::Field;
                $(self.$field.write(out);)*
            }
        }
    )*};
}
pub(super) use group;

/// Reader of an element's content. Running out of octets is an [`Error::length`] of that element.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    id: u16,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(id: u16, octets: &'a [u8]) -> Self {
        Reader { id, rest: octets }
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(Error::length(self.id))?;
        self.rest = rest;
        Ok(*head)
    }

    pub(super) fn take(&mut self, n: usize) -> Result<&'a [u8], Error> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(Error::length(self.id))?;
        self.rest = rest;
        Ok(head)
    }

    #[inline]
    pub(super) fn u8(&mut self) -> Result<u8, Error> {
        self.array::<1>().map(|[octet]| octet)
    }

    #[inline]
    pub(super) fn u16(&mut self) -> Result<u16, Error> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    pub(super) fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads 40 bits, the size of bit rates.
    pub(super) fn u40(&mut self) -> Result<u64, Error> {
        self.array().map(|[a, b, c, d, e]| u64::from_be_bytes([0, 0, 0, a, b, c, d, e]))
    }

    #[inline]
    pub(super) fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn ipv4(&mut self) -> Result<Ipv4Addr, Error> {
        self.array::<4>().map(Ipv4Addr::from)
    }

    pub(super) fn ipv6(&mut self) -> Result<Ipv6Addr, Error> {
        self.array::<16>().map(Ipv6Addr::from)
    }

    /// Calls `read` if `present`.
    pub(super) fn when<T>(
        &mut self,
        present: bool,
        read: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        if present { read(self).map(Some) } else { Ok(None) }
    }

    pub(super) const fn rest(&self) -> &'a [u8] {
        self.rest
    }
}
