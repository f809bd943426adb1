//! Reception of request bodies, with limits of size, time and memory.
//!
//! A peer can open many requests and not end their bodies. Each body has a deadline, and the bodies
//! of a connection and of all connections have a common limit, until their requests are answered.

use crate::common::ProblemDetails;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Maximum size of the bodies of one connection in bytes.
const CONNECTION_OCTETS: usize = 4 << 20;
/// Maximum size of the bodies of all connections in bytes.
const TOTAL_OCTETS: usize = 64 << 20;

/// Reason why a body was not received.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    #[error("the body has more than {0} bytes")]
    TooLong(usize),
    #[error("the body has not ended within {0:?}")]
    TimedOut(Duration),
    #[error("the requests in progress have too much content")]
    NoMemory,
    #[error("the body was cut short: {0}")]
    Broken(#[from] hyper::Error),
}

impl ReceiveError {
    /// Returns the error response (TS 29.500 5.2.7.2).
    pub(crate) fn problem(&self) -> ProblemDetails {
        let (status, cause) = match self {
            ReceiveError::TooLong(_) => (413, "PAYLOAD_TOO_LARGE"),
            ReceiveError::TimedOut(_) => (408, "TIMED_OUT_REQUEST"),
            ReceiveError::NoMemory => (503, "NF_CONGESTION"),
            ReceiveError::Broken(_) => (400, "INVALID_MSG_FORMAT"),
        };
        ProblemDetails::new(status, cause, &self.to_string())
    }
}

/// Memory of bodies.
#[derive(Debug)]
struct Budget {
    used: AtomicUsize,
    limit: usize,
}

impl Budget {
    fn new(limit: usize) -> Arc<Self> {
        Arc::new(Budget { used: AtomicUsize::new(0), limit })
    }

    fn reserve(&self, octets: usize) -> Result<(), ReceiveError> {
        let add = |used: usize| Some(used + octets).filter(|sum| *sum <= self.limit);
        self.used.fetch_update(Relaxed, Relaxed, add).map(drop).map_err(|_| ReceiveError::NoMemory)
    }

    fn release(&self, octets: usize) {
        self.used.fetch_sub(octets, Relaxed);
    }
}

/// Memory of the bodies of one connection.
#[derive(Clone, Debug)]
pub(crate) struct BodyMemory {
    own: Arc<Budget>,
    all: Arc<Budget>,
}

impl BodyMemory {
    pub(crate) fn new() -> Self {
        BodyMemory { own: Budget::new(CONNECTION_OCTETS), all: Budget::new(TOTAL_OCTETS) }
    }

    /// Returns the memory for one more connection.
    pub(crate) fn for_connection(&self) -> Self {
        BodyMemory { own: Budget::new(CONNECTION_OCTETS), all: Arc::clone(&self.all) }
    }
}

/// Reserved memory of one body. Dropping it releases the memory.
#[derive(Debug)]
pub(crate) struct Reservation {
    memory: BodyMemory,
    octets: usize,
}

impl Reservation {
    fn new(memory: BodyMemory) -> Self {
        Reservation { memory, octets: 0 }
    }

    fn grow(&mut self, octets: usize) -> Result<(), ReceiveError> {
        self.memory.own.reserve(octets)?;
        self.memory.all.reserve(octets).inspect_err(|_| self.memory.own.release(octets))?;
        self.octets += octets;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.memory.own.release(self.octets);
        self.memory.all.release(self.octets);
    }
}

/// Receives a body of at most `limit` bytes. The reservation must exist until the request is
/// answered.
pub(crate) async fn receive(
    mut body: Incoming,
    limit: usize,
    timeout: Duration,
    memory: BodyMemory,
) -> Result<(Bytes, Reservation), ReceiveError> {
    let mut reservation = Reservation::new(memory);
    let received = async {
        let mut octets = Vec::new();
        while let Some(frame) = body.frame().await {
            // Trailers have no meaning.
            let Ok(data) = frame?.into_data() else { continue };
            if octets.len() + data.len() > limit {
                return Err(ReceiveError::TooLong(limit));
            }
            reservation.grow(data.len())?;
            octets.extend_from_slice(&data);
        }
        Ok(octets)
    };
    let octets = tokio::time::timeout(timeout, received).await.map_err(|_| ReceiveError::TimedOut(timeout))??;
    Ok((octets.into(), reservation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_limited_by_connection_and_total() {
        const PART: usize = 1 << 18;
        let memory = BodyMemory::new();
        let full = |memory: &BodyMemory| {
            let mut reservation = Reservation::new(memory.clone());
            let parts = (0..100).take_while(|_| reservation.grow(PART).is_ok()).count();
            (parts, reservation)
        };
        let connections: Vec<BodyMemory> = (0..17).map(|_| memory.for_connection()).collect();
        let (parts, mut reservations): (Vec<usize>, Vec<Reservation>) = connections.iter().map(full).unzip();
        assert_eq!((parts[..16].iter().all(|parts| *parts == 16), parts[16]), (true, 0), "{parts:?}");
        // The end of a request makes room for one of another connection.
        reservations.remove(3);
        assert_eq!(full(&connections[16]).0, 16);
        drop(reservations);
        assert_eq!(memory.all.used.load(Relaxed), 0);
        assert!(connections.iter().all(|connection| connection.own.used.load(Relaxed) == 0));
    }
}
