//! Creation of SM contexts.

use super::*;

impl Sessions {
    /// Starts to create an SM context. Returns an error to answer the request at once.
    pub(super) fn create(
        &mut self,
        message: &Message,
        repeated: bool,
        request: RequestHead,
        now: Instant,
        subscription: Lookup<'_>,
    ) -> Result<(), (ReplyTo, Reply)> {
        let RequestHead { key, reply, brought } = request;
        let mut asked = match wire::create(message) {
            Ok(asked) => asked,
            Err(problem) => return Err((reply, Reply::problem(&problem))),
        };
        asked.piggyback = asked.piggyback.filter(|_| self.piggybacks());
        asked.record = brought.as_ref().map(|brought| brought.record);
        let ue = (asked.supi, asked.psi);
        let before = self.by_ue.get(&ue).copied();
        if let Some(entry) = before.and_then(|before| self.index.get(&before))
            && key.is_some()
            && entry.made_by.as_deref() == key.as_deref()
        {
            // A previous SMF has created it, and its response was lost.
            return Err((reply, wire::create_reply(&self.env.root, entry.seid, asked.psi, asked.snssai)));
        }
        let denied = |cause, detail: &str| Reply::problem(&ProblemDetails::new(403, cause, detail));
        let subscription = match subscription(asked.supi) {
            Ok(Some(subscription)) => subscription,
            Ok(None) => return Err((reply, denied("SUBSCRIPTION_DENIED", "no such subscriber"))),
            Err(error) => {
                tracing::error!(error, "subscription not known");
                let reason = "the subscriber database does not answer";
                return Err((reply, Reply::problem(&ProblemDetails::new(500, "SYSTEM_FAILURE", reason))));
            }
        };
        let Some(slice) = subscription.slice(asked.snssai) else {
            return Err((reply, denied("SNSSAI_DENIED", "the slice is not subscribed")));
        };
        let Some(network) = slice.dnns.iter().find(|network| network.dnn == asked.dnn) else {
            return Err((reply, denied("DNN_DENIED", "the data network is not subscribed")));
        };
        // With piggyback, a repeated request for an existing session returns here, before the
        // previous session is released.
        let place = match asked.piggyback.map(|number| self.place_of(&asked, number)).transpose() {
            Ok(place) => place,
            Err(answer) => return Err((reply, answer)),
        };
        // The AMF no longer has the previous session (TS 29.502 5.2.2.2.1). With piggyback, it is
        // released only if this SMF has it in memory.
        if let Some(before) = before {
            self.by_ue.remove(&ue);
            if !self.piggybacks() || self.is_held(before) {
                self.enqueue(before, SmEvent::Forgotten, Transaction::Other, now);
            }
        }
        let Some(ltmsi) = place.or_else(|| self.free_number()) else {
            let reason = "there is no room for more sessions";
            return Err((reply, Reply::problem(&ProblemDetails::new(500, "INSUFFICIENT_RESOURCES_SLICE_DNN", reason))));
        };
        let may_be_left = repeated && asked.piggyback.is_some();
        let turn = SmEvent::Create(Box::new((asked, network.clone())));
        if may_be_left {
            self.fetch_before_create(ltmsi, turn, (key, reply), now);
            return Ok(());
        }
        let request = RequestHead { key, reply, brought };
        self.enqueue_request(ltmsi, turn, Transaction::CreateSmContext, request, now);
        Ok(())
    }

    /// Returns an unused SM context number.
    pub(super) fn free_number(&mut self) -> Option<Ltmsi> {
        if self.index.len() >= MAX_CONTEXTS {
            return None;
        }
        loop {
            self.next = self.next.wrapping_add(1);
            let ltmsi = Ltmsi::from_raw(self.next & 0x0fff_ffff);
            let begun = matches!(&self.backend, SessionBackend::Database(stored) if stored.lanes.contains_key(&ltmsi));
            if !begun && !self.index.contains_key(&ltmsi) {
                return Some(ltmsi);
            }
        }
    }
}
