//! `sockaddr` of both address families.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Storage for an IPv4 or IPv6 address in the kernel's format.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union SockAddr {
    pub(crate) family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl std::fmt::Debug for SockAddr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}

impl SockAddr {
    pub(crate) const EMPTY: Self = Self { v6: EMPTY_V6 };

    pub(crate) fn new(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => {
                let mut room = Self::EMPTY;
                room.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                    sin_zero: [0; 8],
                };
                room
            }
            SocketAddr::V6(address) => Self {
                v6: libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                    sin6_scope_id: address.scope_id(),
                },
            },
        }
    }

    /// Returns the address if it is of one of the two families.
    pub(crate) fn get(&self) -> Option<SocketAddr> {
        // SAFETY: every bit pattern is valid for both forms, and both start with the family, which
        // says which it is.
        unsafe {
            match i32::from(self.family) {
                libc::AF_INET => {
                    let ip = Ipv4Addr::from(self.v4.sin_addr.s_addr.to_ne_bytes());
                    Some(SocketAddrV4::new(ip, u16::from_be(self.v4.sin_port)).into())
                }
                libc::AF_INET6 => {
                    let ip = Ipv6Addr::from(self.v6.sin6_addr.s6_addr);
                    let port = u16::from_be(self.v6.sin6_port);
                    Some(SocketAddrV6::new(ip, port, 0, self.v6.sin6_scope_id).into())
                }
                _ => None,
            }
        }
    }

    /// Returns the length of the address in the kernel's format.
    pub(crate) fn len(&self) -> libc::socklen_t {
        // SAFETY: both forms start with the family.
        let size = match i32::from(unsafe { self.family }) {
            libc::AF_INET => size_of::<libc::sockaddr_in>(),
            _ => size_of::<libc::sockaddr_in6>(),
        };
        size as libc::socklen_t
    }

    pub(crate) fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const *self).cast()
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut *self).cast()
    }
}

const EMPTY_V6: libc::sockaddr_in6 = libc::sockaddr_in6 {
    sin6_family: 0,
    sin6_port: 0,
    sin6_flowinfo: 0,
    sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
    sin6_scope_id: 0,
};

/// Returns the address family of an address.
pub(crate) fn family(ip: IpAddr) -> libc::c_int {
    if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_converts_back() {
        for text in ["127.0.0.5:38412", "[2001:db8::1]:38412", "0.0.0.0:0", "[::]:9899"] {
            let address: SocketAddr = text.parse().expect("an address");
            assert_eq!(SockAddr::new(address).get(), Some(address));
        }
        assert_eq!(SockAddr::EMPTY.get(), None);
    }
}
