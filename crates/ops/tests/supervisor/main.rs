//! Supervisor with real processes: this binary, started again as workers.

mod lab;
mod share;
mod watch;
