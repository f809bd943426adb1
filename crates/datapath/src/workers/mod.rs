//! Workers: threads and processes that run the drivers on the engine.

pub(crate) mod process;
pub(crate) mod slices;
pub(crate) mod thread;
