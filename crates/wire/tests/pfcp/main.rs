//! PFCP against tshark's dissector, the `rs-pfcp` crate, and random input.

mod dissected;
mod oracle;
mod properties;
mod refused;
mod samples;
