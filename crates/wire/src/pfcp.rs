//! PFCP (TS 29.244).
