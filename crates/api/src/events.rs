//! Events for clients of `/v1/events`, with a bounded buffer.
//!
//! A reader that is slower than the buffer loses its stream, and continues by `Last-Event-ID` or
//! begins again. Publishing never waits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::broadcast::{Receiver, Sender, channel};

/// Events that a reader may be behind, and that are kept for readers that come back.
const BUFFER: usize = 1024;

/// An event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Grows by one, also over a restart of the process.
    pub(crate) id: u64,
    /// Name of the event, for example `alarm`.
    pub(crate) kind: &'static str,
    /// Content, a JSON object.
    pub(crate) data: String,
    /// Content with SUPIs, for roles that see them; `None` if the content names no subscriber.
    pub(crate) revealed: Option<String>,
}

impl Event {
    /// Returns the content for a reader.
    pub(crate) fn data_for(&self, reveals_supi: bool) -> &str {
        self.revealed.as_ref().filter(|_| reveals_supi).unwrap_or(&self.data)
    }
}

/// Publisher of events.
pub(crate) struct Events {
    state: Mutex<State>,
    sender: Sender<Arc<Event>>,
}

struct State {
    next: u64,
    recent: VecDeque<Arc<Event>>,
}

/// The events of one reader: those that it has missed, then new ones.
pub(crate) struct Reading {
    pub(crate) missed: VecDeque<Arc<Event>>,
    pub(crate) new: Receiver<Arc<Event>>,
}

impl Events {
    /// Creates a publisher. The first number is above those of an earlier process.
    pub(crate) fn new(now_s: u64) -> Self {
        let state = State { next: now_s.saturating_mul(1_000_000), recent: VecDeque::new() };
        Events { state: Mutex::new(state), sender: channel(BUFFER).0 }
    }

    /// Publishes an event.
    pub(crate) fn publish(&self, kind: &'static str, data: String) {
        self.publish_by_role(kind, data, None);
    }

    /// Publishes an event, and its content with SUPIs.
    pub(crate) fn publish_by_role(&self, kind: &'static str, data: String, revealed: Option<String>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let event = Arc::new(Event { id: state.next, kind, data, revealed });
        state.next += 1;
        state.recent.push_back(Arc::clone(&event));
        if state.recent.len() > BUFFER {
            state.recent.pop_front();
        }
        // Without readers there is nothing to do.
        let _ = self.sender.send(event);
    }

    /// Begins to read after an event; without one, with the next event.
    pub(crate) fn read(&self, after: Option<u64>) -> Reading {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let new = self.sender.subscribe();
        let missed = after.map(|after| state.recent.iter().filter(|event| event.id > after).cloned().collect());
        Reading { missed: missed.unwrap_or_default(), new }
    }

    /// Returns the number of readers.
    pub(crate) fn readers(&self) -> usize {
        self.sender.receiver_count()
    }
}

impl Reading {
    /// Waits for the next event. `None` = the reader was too slow, or the API ends.
    pub(crate) async fn next(&mut self) -> Option<Arc<Event>> {
        match self.missed.pop_front() {
            Some(event) => Some(event),
            None => self.new.recv().await.ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn reader_continues_after_its_last_event() {
        let events = Events::new(1);
        (0..5).for_each(|n| events.publish("overview", n.to_string()));
        let mut reading = events.read(Some(1_000_002));
        events.publish("alarm", "5".into());
        let ids = block_on(async {
            let mut ids = Vec::new();
            for _ in 0..3 {
                ids.push(reading.next().await.unwrap().data.clone());
            }
            ids
        });
        assert_eq!(ids, ["3", "4", "5"], "none is lost and none repeated");
        assert!(events.read(None).missed.is_empty());
    }

    #[test]
    fn slow_reader_loses_its_stream_only() {
        let events = Events::new(1);
        let (mut slow, mut other) = (events.read(None), events.read(None));
        for n in 0..=BUFFER {
            events.publish("overview", n.to_string());
            if n > 0 {
                block_on(other.next()).unwrap();
            }
        }
        assert_eq!(block_on(slow.next()), None);
        assert!(block_on(other.next()).is_some());
        assert_eq!(events.state.lock().unwrap().recent.len(), BUFFER);
    }
}
