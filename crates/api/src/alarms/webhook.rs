//! Sender of alarms to a web server (`alarms.webhook`).
//!
//! Alarms wait in a bounded queue. Each is sent up to three times. A slow or dead receiver affects
//! nothing else.

use super::Alarm;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{sleep, timeout};

/// Alarms that may wait.
const QUEUE: usize = 256;
/// Attempts to send an alarm.
const ATTEMPTS: u32 = 3;
/// Maximum time of an attempt.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// Pause after a failed attempt.
const AGAIN: Duration = Duration::from_secs(2);

/// A parsed `http://HOST:PORT/PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    authority: String,
    path: String,
}

impl Target {
    /// Parses a URL; `None` if it is not one of `http`.
    pub(crate) fn parse(url: &str) -> Option<Self> {
        let rest = url.strip_prefix("http://")?;
        let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
        let visible = url.bytes().all(|octet| octet.is_ascii_graphic()) && !authority.contains('@');
        let authority = if authority.contains(':') { authority.to_owned() } else { format!("{authority}:80") };
        (visible && !authority.starts_with(':')).then(|| Target { authority, path: path.to_owned() })
    }

    async fn send(&self, body: &str) -> io::Result<()> {
        let mut stream = TcpStream::connect(&self.authority).await?;
        let Target { authority, path } = self;
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).await?;
        match &head[..10] {
            b"HTTP/1.1 2" | b"HTTP/1.0 2" => Ok(()),
            _ => Err(io::Error::other(format!("the answer is {}", String::from_utf8_lossy(&head)))),
        }
    }
}

/// Queue of the sender.
#[derive(Clone, Debug)]
pub(crate) struct Webhook(Option<Sender<String>>);

impl Webhook {
    /// Starts the sender on the runtime of the caller; without a target there is none.
    pub(crate) fn start(target: Option<Target>) -> Self {
        Webhook(target.map(|target| {
            let (alarms, queue) = channel(QUEUE);
            tokio::spawn(run(target, queue));
            alarms
        }))
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

async fn run(target: Target, mut queue: Receiver<String>) {
    while let Some(body) = queue.recv().await {
        for attempt in 1..=ATTEMPTS {
            let sent = timeout(ANSWERED_WITHIN, target.send(&body)).await;
            let error = match sent {
                Ok(Ok(())) => break,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer in time".to_owned(),
            };
            if attempt == ATTEMPTS {
                tracing::warn!(error, "alarm not sent to the webhook; check alarms.webhook");
            } else {
                sleep(AGAIN).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_http_is_a_target() {
        let target = |url| Target::parse(url).map(|target| (target.authority, target.path));
        let some = |authority: &str, path: &str| Some((authority.to_owned(), path.to_owned()));
        assert_eq!(target("http://127.0.0.1:9/alarms?x=1"), some("127.0.0.1:9", "/alarms?x=1"));
        assert_eq!(target("http://am.example"), some("am.example:80", "/"));
        for bad in ["https://a:1/", "a:1", "http://", "http:///x", "http://a b/", "http://a/\r\nX: 1", "http://u:p@h/"]
        {
            assert_eq!(target(bad), None, "{bad:?}");
        }
    }
}
