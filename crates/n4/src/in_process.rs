use std::fmt::Debug;
use std::net::SocketAddr;

/// A UPF of the same process. It takes PFCP messages without a network and answers at once.
pub trait InProcess: Debug + Send {
    /// Returns the address at which the UPF listens for PFCP on the network.
    fn address(&self) -> SocketAddr;

    /// Passes a datagram of `from` to the UPF, and its answers to `answer`. Requests that the UPF
    /// itself starts arrive over the network.
    fn exchange(&self, from: SocketAddr, datagram: &[u8], answer: &mut dyn FnMut(Vec<u8>));
}
