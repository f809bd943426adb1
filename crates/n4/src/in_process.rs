use std::fmt::Debug;
use std::net::SocketAddr;

/// A UPF of the same process. It takes PFCP messages without a network and answers at once.
pub trait InProcess: Debug + Send {
    /// Returns the address at which the UPF listens for PFCP on the network.
    fn address(&self) -> SocketAddr;

    /// Passes a datagram of `from` to the UPF, and its answers to `answer`. Requests that the UPF
    /// itself starts arrive over the network.
    ///
    /// `may_repeat` is false if no endpoint sends a request again that was answered. The UPF need
    /// not remember its answer then.
    fn exchange(&self, from: SocketAddr, datagram: &[u8], may_repeat: bool, answer: &mut dyn FnMut(Vec<u8>));
}
