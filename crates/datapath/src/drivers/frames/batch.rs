//! Batches of frames, and the results of processing them.

/// Result of processing a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FrameVerdict {
    /// The frame's memory is free.
    #[default]
    Done,
    /// Send `start..end` through an interface of the driver.
    Send { port: usize, start: usize, end: usize, uplink: bool, octets: usize },
}

/// A frame in the memory of its driver.
#[derive(Debug)]
pub(crate) struct FrameMemory<'a> {
    pub(crate) octets: &'a mut [u8],
    /// The frame is `octets[start..end]`. `start` is
    /// [`ROOM`](crate::engine::frame_layout::ROOM) or more.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// A batch of frames, at most [`BATCH`](crate::sys::BATCH).
pub(crate) trait Frames {
    /// Returns the number of frames.
    fn count(&self) -> usize;
    /// Returns frame `n`.
    fn frame(&mut self, n: usize) -> FrameMemory<'_>;
    /// Returns true if the sender left the transport checksum to hardware that the frame did not
    /// pass.
    fn lacks_checksum(&self, n: usize) -> bool;
}
