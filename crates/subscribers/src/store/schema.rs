use super::engine::Engine;
use sqlx::AnyConnection;
use sqlx::error::BoxDynError;
use sqlx::migrate::{MigrateError, Migration, MigrationSource, MigrationType, Migrator};
use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;

/// Version of this release's schema. It is the same number in both databases.
pub(super) const VERSION: i64 = 2;

/// A version of the schema, its name and its SQL.
type Step = (i64, &'static str, &'static str);

/// All versions of the schema, in order. A released one never changes.
const SQLITE: [Step; 2] = [
    (1, "subscribers", include_str!("../../migrations/sqlite/0001_subscribers.sql")),
    (VERSION, "sealed secrets", include_str!("../../migrations/sqlite/0002_sealed_secrets.sql")),
];

/// PostgreSQL has no version without sealed secrets.
const POSTGRES: [Step; 1] = [(VERSION, "subscribers", include_str!("../../migrations/postgres/0002_subscribers.sql"))];

#[derive(Debug)]
struct Embedded(&'static [Step]);

impl MigrationSource<'static> for Embedded {
    fn resolve(self) -> Pin<Box<dyn Future<Output = Result<Vec<Migration>, BoxDynError>> + Send + 'static>> {
        let one = |(version, name, sql): &Step| {
            Migration::new(*version, Cow::Borrowed(name), MigrationType::Simple, Cow::Borrowed(sql), false)
        };
        Box::pin(async move { Ok(self.0.iter().map(one).collect()) })
    }
}

/// Migrates the database to this release's schema. Refuses a newer or foreign one.
pub(super) async fn migrate(connection: &mut AnyConnection, engine: Engine) -> Result<(), MigrateError> {
    let steps: &'static [Step] = match engine {
        Engine::Sqlite => &SQLITE,
        Engine::Postgres => &POSTGRES,
    };
    Migrator::new(Embedded(steps)).await?.run_direct(connection).await
}
