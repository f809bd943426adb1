//! Mutual exclusion between workers and the control side.

/// Mutual exclusion between workers and the control side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locking {
    /// Neither waits for the other. The sequence word protects an entry, and packets are counted in
    /// place.
    #[default]
    Fine,
    /// One lock around everything, taken for each batch of packets and each change. For comparison.
    Coarse,
    /// A lock for each entry, which holds rule and counters together. Taken for each packet and
    /// each change. For comparison.
    SharedWriter,
}

/// Waiting strategy for events that take nanoseconds, unless the thread to wait for has lost its
/// processor.
#[derive(Debug, Default)]
pub(crate) struct SpinWait(u32);

impl SpinWait {
    /// Returns true if the wait is so long that the caller should sleep until it is woken.
    pub(crate) fn is_long(&self) -> bool {
        self.0 >= 100
    }

    pub(crate) fn once(&mut self) {
        self.0 = self.0.saturating_add(1);
        match self.0 {
            ..200 => std::hint::spin_loop(),
            200..2_000 => std::thread::yield_now(),
            _ => std::thread::sleep(std::time::Duration::from_micros(20)),
        }
    }
}
