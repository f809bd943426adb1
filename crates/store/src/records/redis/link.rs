//! Connection to one Redis server.

use super::commands::{Scripts, refused};
use crate::records::backoff::Backoff;
use crate::records::{DatabaseTls, RecordError};
use redis::{Client, Connection, ErrorKind, RedisError, ServerErrorKind, Value};
use std::time::Duration;

/// Address and options of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// `redis://HOST:PORT`, `redis+unix:///PATH` or, with TLS, `rediss://HOST:PORT`.
    pub url: String,
    /// Timeout of an answer.
    pub timeout: Duration,
    /// TLS options, used by `rediss://` only.
    pub tls: DatabaseTls,
}

/// A connection that is opened on demand, and reopened after an error with growing back-off.
pub struct RedisConnection {
    config: LinkConfig,
    connection: Option<Connection>,
    /// Digests of the scripts that the connected server has loaded.
    scripts: Option<Scripts>,
    pause: Backoff,
}

impl std::fmt::Debug for RedisConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("connected", &self.connection.is_some()).finish_non_exhaustive()
    }
}

impl RedisConnection {
    /// Creates an unconnected value.
    pub fn new(config: LinkConfig) -> Self {
        RedisConnection { config, connection: None, scripts: None, pause: Backoff::default() }
    }

    fn connect(&self) -> Result<Connection, RedisError> {
        let timeout = self.config.timeout;
        let url = self.config.url.as_str();
        let client = match url.starts_with("rediss://") {
            true => Client::build_with_tls(url, self.config.tls.read().map_err(std::io::Error::other)?)?,
            false => Client::open(url)?,
        };
        let connection = client.get_connection_with_timeout(timeout)?;
        connection.set_read_timeout(Some(timeout))?;
        connection.set_write_timeout(Some(timeout))?;
        Ok(connection)
    }

    /// Runs a request over the connection.
    ///
    /// # Errors
    ///
    /// Returns [`RecordError::Down`] without a request while the back-off after a failure lasts.
    pub fn request<T>(
        &mut self,
        send: impl FnOnce(&mut Connection) -> Result<T, RedisError>,
    ) -> Result<T, RecordError> {
        self.pause.check()?;
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().map_err(|error| self.failed(RecordError::Down(error.to_string())))?,
        };
        match send(&mut connection) {
            Ok(answer) => {
                self.connection = Some(connection);
                self.pause.reset();
                Ok(answer)
            }
            // The connection works; the server refused the request.
            Err(error) if error.kind() != ErrorKind::Io && !error.is_connection_dropped() => {
                self.connection = Some(connection);
                Err(refused(&error))
            }
            // A late answer may still arrive on this connection, so it is closed.
            Err(error) => Err(self.failed(RecordError::OutcomeUnknown(error.to_string()))),
        }
    }

    /// Runs a request over a connection whose server has loaded the commit scripts.
    ///
    /// # Errors
    ///
    /// Fails as [`RedisConnection::request`]. If the server has dropped the scripts, nothing was
    /// done, and the next request loads them again.
    pub(super) fn request_with_scripts(
        &mut self,
        send: impl FnOnce(&mut Connection, &Scripts) -> Result<Vec<Value>, RedisError>,
    ) -> Result<Vec<Value>, RecordError> {
        let known = self.scripts.take().filter(|_| self.connection.is_some());
        let mut used = None;
        let answers = self.request(|connection| {
            let scripts = match known {
                Some(scripts) => scripts,
                None => Scripts::load(connection)?,
            };
            send(connection, used.insert(scripts))
        })?;
        let forgotten = |answer: &Value| matches!(answer, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript));
        self.scripts = used.filter(|_| !answers.iter().any(forgotten));
        Ok(answers)
    }

    /// Starts the back-off and returns the error.
    fn failed(&mut self, error: RecordError) -> RecordError {
        self.pause.extend();
        error
    }
}
