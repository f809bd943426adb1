use sqlx::SqliteConnection;
use sqlx::error::BoxDynError;
use sqlx::migrate::{MigrateError, Migration, MigrationSource, MigrationType, Migrator};
use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;

/// All versions of the schema, in order. A released one never changes.
const MIGRATIONS: [(i64, &str, &str); 2] = [
    (1, "subscribers", include_str!("../../migrations/sqlite/0001_subscribers.sql")),
    (2, "sealed secrets", include_str!("../../migrations/sqlite/0002_sealed_secrets.sql")),
];

#[derive(Debug)]
struct Embedded;

impl MigrationSource<'static> for Embedded {
    fn resolve(self) -> Pin<Box<dyn Future<Output = Result<Vec<Migration>, BoxDynError>> + Send + 'static>> {
        let one = |(version, name, sql)| {
            Migration::new(version, Cow::Borrowed(name), MigrationType::Simple, Cow::Borrowed(sql), false)
        };
        Box::pin(async move { Ok(MIGRATIONS.into_iter().map(one).collect()) })
    }
}

/// Migrates the database to this release's schema. Refuses a newer or foreign one.
pub(super) async fn migrate(connection: &mut SqliteConnection) -> Result<(), MigrateError> {
    Migrator::new(Embedded).await?.run_direct(connection).await
}
