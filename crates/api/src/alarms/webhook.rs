//! Sender of alarms to a web server (`alarms.webhook`).
//!
//! Alarms wait in a bounded queue. Each is sent up to three times. A slow or dead receiver affects
//! nothing else.

use super::Alarm;
use crate::management::WebhookConfig;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::sleep;
use vireo_ops::http_post::HttpPost;

/// Alarms that may wait.
const QUEUE: usize = 256;
/// Attempts to send an alarm.
const ATTEMPTS: u32 = 3;
/// Pause after a failed attempt.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// Queue of the sender.
#[derive(Clone, Debug)]
pub(crate) struct Webhook(Option<Sender<String>>);

impl Webhook {
    /// Starts the sender on the runtime of the caller, if one is configured. Without usable
    /// authorities there is none, and the log says so.
    pub(crate) fn start(config: Option<&WebhookConfig>) -> Self {
        let Some(WebhookConfig { url, authorities }) = config else { return Webhook(None) };
        match HttpPost::new(url.clone(), authorities.as_deref()) {
            Ok(target) => {
                let (alarms, queue) = channel(QUEUE);
                tokio::spawn(run(target, queue));
                Webhook(Some(alarms))
            }
            Err(error) => {
                tracing::error!(%error, "alarms are not sent to the webhook; check alarms.authorities");
                Webhook(None)
            }
        }
    }

    /// Queues an alarm. If the queue is full, the alarm is dropped and logged.
    pub(crate) fn send(&self, alarm: &Alarm) {
        let Some(queue) = &self.0 else { return };
        // Plain data with string keys always has a JSON form.
        let body = serde_json::to_string(alarm).unwrap_or_default();
        if queue.try_send(body).is_err() {
            tracing::warn!(alarm = alarm.id, "alarm not sent to the webhook: its queue is full");
        }
    }
}

async fn run(target: HttpPost, mut queue: Receiver<String>) {
    while let Some(body) = queue.recv().await {
        for attempt in 1..=ATTEMPTS {
            let Err(error) = target.send("application/json", body.as_bytes()).await else { break };
            if attempt == ATTEMPTS {
                tracing::warn!(%error, "alarm not sent to the webhook; check alarms.webhook");
            } else {
                sleep(RETRY_DELAY).await;
            }
        }
    }
}
