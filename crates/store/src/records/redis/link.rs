//! A connection to one server.

use super::commands::{Scripts, refused};
use crate::records::backoff::Backoff;
use crate::records::{DatabaseTls, RecordError};
use redis::{Client, Connection, ErrorKind, RedisError, ServerErrorKind, Value};
use std::time::Duration;

/// How a database is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// `redis://HOST:PORT`, `redis+unix:///PATH` or, with TLS, `rediss://HOST:PORT`.
    pub url: String,
    /// How long an answer is waited for.
    pub patience: Duration,
    /// Of `rediss://`.
    pub tls: DatabaseTls,
}

/// A connection that is made when it is needed, and again after an error, with growing pauses in between.
pub struct RedisConnection {
    config: LinkConfig,
    connection: Option<Connection>,
    /// What the server at the other end of it calls the scripts that it was given there.
    scripts: Option<Scripts>,
    pause: Backoff,
}

impl std::fmt::Debug for RedisConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("connected", &self.connection.is_some()).finish_non_exhaustive()
    }
}

impl RedisConnection {
    /// A way that is not taken yet.
    pub fn new(config: LinkConfig) -> Self {
        RedisConnection { config, connection: None, scripts: None, pause: Backoff::default() }
    }

    fn connect(&self) -> Result<Connection, RedisError> {
        let patience = self.config.patience;
        let url = self.config.url.as_str();
        let client = match url.starts_with("rediss://") {
            true => Client::build_with_tls(url, self.config.tls.read().map_err(std::io::Error::other)?)?,
            false => Client::open(url)?,
        };
        let connection = client.get_connection_with_timeout(patience)?;
        connection.set_read_timeout(Some(patience))?;
        connection.set_write_timeout(Some(patience))?;
        Ok(connection)
    }

    /// Asks by a connection.
    ///
    /// # Errors
    ///
    /// [`RecordError::Down`] without asking, for a moment after a failure.
    pub fn ask<T>(&mut self, ask: impl FnOnce(&mut Connection) -> Result<T, RedisError>) -> Result<T, RecordError> {
        self.pause.check()?;
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().map_err(|error| self.failed(RecordError::Down(error.to_string())))?,
        };
        match ask(&mut connection) {
            Ok(answer) => {
                self.connection = Some(connection);
                self.pause.succeeded();
                Ok(answer)
            }
            // The connection is sound, and whatever it was asked was refused.
            Err(error) if error.kind() != ErrorKind::Io && !error.is_connection_dropped() => {
                self.connection = Some(connection);
                Err(refused(&error))
            }
            // What was under way on it may come yet: it is not used any more.
            Err(error) => Err(self.failed(RecordError::OutcomeUnknown(error.to_string()))),
        }
    }

    /// Asks by a connection whose server knows the scripts of commits.
    ///
    /// # Errors
    ///
    /// As [`RedisConnection::ask`]. Where the server has forgotten them, nothing was done, and they are given to it again next time.
    pub(super) fn ask_scripts(
        &mut self,
        ask: impl FnOnce(&mut Connection, &Scripts) -> Result<Vec<Value>, RedisError>,
    ) -> Result<Vec<Value>, RecordError> {
        let known = self.scripts.take().filter(|_| self.connection.is_some());
        let mut asked = None;
        let answers = self.ask(|connection| {
            let scripts = match known {
                Some(scripts) => scripts,
                None => Scripts::load(connection)?,
            };
            ask(connection, asked.insert(scripts))
        })?;
        let forgotten = |answer: &Value| matches!(answer, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript));
        self.scripts = asked.filter(|_| !answers.iter().any(forgotten));
        Ok(answers)
    }

    /// The database is left alone for a moment.
    fn failed(&mut self, error: RecordError) -> RecordError {
        self.pause.failed();
        error
    }
}
