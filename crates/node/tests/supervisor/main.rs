//! The crew with real processes: this binary, started again as what it looks after.

mod lab;
mod share;
mod watch;
